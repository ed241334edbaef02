#include "core/mutant.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

namespace mixed_gemm {
namespace {

// A name that is unknown must not pass for a mutant that no test finds, nor for one that all do.
int active_mutant() {
  const char* wanted = std::getenv("MIXED_GEMM_MUTANT");
  if (wanted == nullptr || *wanted == '\0') return 0;
  static constexpr const char* kNames[] = {
#define X(name) #name,
#include "core/mutant_list.h"
#undef X
  };
  int mutant = 0;
  for (const char* name : kNames) {
    ++mutant;
    if (std::strcmp(name, wanted) == 0) return mutant;
  }
  std::fprintf(stderr, "MIXED_GEMM_MUTANT=%s is no mutant of tools/mutation/rows.py\n", wanted);
  std::_Exit(70);
}

std::vector<SetMutant>& files() {
  static std::vector<SetMutant> of_library;
  return of_library;
}

}  // namespace

const int kActiveMutant = active_mutant();

bool register_mutant_of_file(SetMutant set) {
  files().push_back(set);
  return true;
}

int prepare_mutant() {
  for (const SetMutant set : files()) {
    const int error = set(kActiveMutant);
    if (error != 0) return error;
  }
  return 0;
}

}  // namespace mixed_gemm
