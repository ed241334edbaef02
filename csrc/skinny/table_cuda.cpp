#include "grid/launcher_table.h"
#include "skinny/launchers.h"

namespace mixed_gemm {

const SkinnyKernels::Launchers& skinny_launchers(ElementType element, WeightType weight, int mode) {
  return launchers_of<SkinnyKernels>(element, weight, mode);
}

}  // namespace mixed_gemm
