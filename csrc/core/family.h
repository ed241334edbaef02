// A family of kernels that run one kind of problem, as dispatch/ knows it. A family's folder
// defines a struct
//
//   struct Multistage {
//     static const Family<GemmProblem> plan;  // without kernels: C++ tests and CPU builds plan too
//     static Run<GemmProblem> run;            // with them
//   };
//
// and dispatch/families.h lists it. Everything else about choosing is written once, in dispatch/.
#pragma once
#include <limits>
#include <string>
#include <vector>

#include "core/choice.h"
#include "core/status.h"

namespace mixed_gemm {

struct RunContext;  // grid/run_context.h

// Launches the kernel of a choice.
template <typename Problem>
using Run = Status(const Choice& choice, const Problem& problem, const RunContext& context);

// The tile of a choice, and the shared memory of a block.
struct TileUse {
  TileConfig tile;
  int smem_bytes;
};

// The prediction for a choice that a test may name and nobody should run: it is listed behind all
// others, and is never taken.
constexpr double kNeverChosen = std::numeric_limits<double>::infinity();

template <typename Problem>
struct Family {
  const char* name;  // the first word of its configurations
  // The choices worth a prediction; whether they run is for why_not to say. `family` is 0.
  std::vector<Choice> (*choices)();
  std::string (*config)(const Choice&);
  bool (*parse)(const std::string&, Choice&);  // the inverse; false: no name of this family
  // Reason why a choice cannot run the problem on the device, or empty.
  std::string (*why_not)(const Choice&, const Problem&, const DeviceInfo&);
  double (*predict_us)(const Choice&, const Problem&, const DeviceInfo&);
  TileUse (*tile)(const Choice&, const Problem&) = nullptr;  // null: the family has no tiles
  bool holds_for_larger_m = false;  // where it is the fastest it is so for every larger M
  // Why it runs a problem, for plan(). A family that has a reason has no cost model: what it
  // predicts, 0 or kNeverChosen, is a place in the order and no time.
  std::string (*reason)(const Problem&, const DeviceInfo&) = nullptr;
};

}  // namespace mixed_gemm
