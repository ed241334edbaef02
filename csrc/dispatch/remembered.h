// Choices that one thread has made, by what they depend on. Ranking the candidates of a problem
// takes as long as a small kernel runs.
#pragma once
#include <map>
#include <tuple>
#include <utility>

#include "core/device.h"
#include "dispatch/tuned_table.h"

namespace mixed_gemm {

// Calls choose(problem, device) once for problems and devices that are alike. A new table of
// measured points (tune()) makes all choices anew.
//
// selection_key() stands beside each problem and DeviceInfo and has every field that is no address.
// Its structured bindings name all fields of the struct, so a struct that gains one does not
// compile until it is decided whether a choice can depend on it. A field that nothing reads costs a
// second entry; one that is left out runs the wrong kernel.
template <typename Choice, typename Problem, typename Choose>
Choice remembered(const Problem& problem, const DeviceInfo& device, const Choose& choose) {
  constexpr size_t kMaxRemembered = 4096;  // problems; a server sees a few hundred
  using Key = decltype(std::tuple_cat(selection_key(problem), selection_key(device)));
  thread_local std::map<Key, Choice> known;
  thread_local int generation = -1;
  const int current = tuned_table_generation();
  if (generation != current || known.size() >= kMaxRemembered) {
    generation = current;
    known.clear();
  }
  Key key = std::tuple_cat(selection_key(problem), selection_key(device));
  const auto found = known.find(key);
  if (found != known.end()) return found->second;
  return known.emplace(std::move(key), choose(problem, device)).first->second;
}

}  // namespace mixed_gemm
