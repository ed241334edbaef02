// Two warpgroups that take turns at the tensor cores: one waits until the other one has called it.
// Whom a group calls when, as functions that the host can try in every order in which the two may
// run (tests/cpp/test_turns.cpp): a call is half of a barrier of two, so two calls of a group that
// has not answered the first would be a meeting without it.
//
// An item of work is some turns of each. Group 0 has the first one.
#pragma once

namespace mixed_gemm {

constexpr bool calls_before_item(int group) { return group == 1; }
// After its turn a group calls the other one. Nobody waits for the last call of group 1: the next
// item begins with one.
constexpr bool calls_after_turn(int group, bool last_of_item) {
  return group == 0 || !last_of_item;
}

}  // namespace mixed_gemm
