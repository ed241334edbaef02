// Two warpgroups that take turns, in every order in which their steps can follow each other: each
// barrier is of two arrivals, a call and a wait, and nobody may meet without the one who waits.
#include <gtest/gtest.h>

#include <array>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "hopper/turns.h"

namespace mixed_gemm {
namespace {

enum class Step { kCall, kWait, kMultiply };  // of the other group; for a call; in one's turn

// What a group does: multiply_and_promote() of scaled_wgmma/mainloop.cuh, item after item, with no
// meeting in between, as where the slices of a parallel split are stored.
std::vector<Step> steps_of(int group, int items, int turns) {
  std::vector<Step> steps;
  for (int item = 0; item < items; ++item) {
    if (calls_before_item(group)) steps.push_back(Step::kCall);
    for (int turn = 0; turn < turns; ++turn) {
      steps.push_back(Step::kWait);
      steps.push_back(Step::kMultiply);
      if (calls_after_turn(group, turn + 1 == turns)) steps.push_back(Step::kCall);
    }
  }
  return steps;
}

struct State {
  std::array<int, 2> at = {0, 0};       // step of each group
  std::array<int, 2> arrived = {0, 0};  // at the barrier on which each group waits
  std::array<bool, 2> waits = {false, false};
  std::array<int, 2> turns = {0, 0};  // taken

  auto key() const { return std::tie(at, arrived, waits, turns); }
  bool operator<(const State& other) const { return key() < other.key(); }
};

class Turns {
 public:
  Turns(int items, int turns) : steps_{steps_of(0, items, turns), steps_of(1, items, turns)} {
    explore(State());
  }
  std::set<std::string> faults;
  int ends = 0;  // states in which both are done

 private:
  bool done(const State& s, int group) const {
    return s.at[group] == static_cast<int>(steps_[group].size());
  }

  void explore(const State& s) {
    if (!seen_.insert(s).second) return;
    bool moved = false;
    for (int group = 0; group < 2; ++group) {
      if (s.waits[group] || done(s, group)) continue;
      moved = true;
      explore(after(s, group));
    }
    if (moved) return;
    if (done(s, 0) && done(s, 1)) {
      ++ends;
      if (s.arrived != std::array<int, 2>{0, 0}) faults.insert("a call that nobody answered");
      if (s.turns[0] != s.turns[1]) faults.insert("turns are not shared evenly");
    } else {
      faults.insert("both wait");
    }
  }

  State after(State s, int group) {
    const Step step = steps_[group][s.at[group]];
    if (step == Step::kMultiply) {
      ++s.turns[group], ++s.at[group];
      const int ahead = s.turns[0] - s.turns[1];
      if (ahead < 0 || ahead > 1) faults.insert("a turn out of order");
      return s;
    }
    const int whose = step == Step::kWait ? group : 1 - group;
    s.waits[group] = step == Step::kWait;
    if (step == Step::kCall) ++s.at[group];
    if (++s.arrived[whose] < 2) return s;
    s.arrived[whose] = 0;
    if (!s.waits[whose]) {
      faults.insert("a meeting without the one who is called");
    } else {
      s.waits[whose] = false;
      ++s.at[whose];
    }
    return s;
  }

  std::array<std::vector<Step>, 2> steps_;
  std::set<State> seen_;
};

TEST(Turns, AreTakenInOrderWhoeverIsFaster) {
  for (const int items : {1, 2, 4}) {
    for (const int turns : {1, 2, 3, 6}) {
      const Turns tried(items, turns);
      EXPECT_EQ(tried.faults, std::set<std::string>()) << items << " items, " << turns << " turns";
      EXPECT_EQ(tried.ends, 1);
    }
  }
}

}  // namespace
}  // namespace mixed_gemm
