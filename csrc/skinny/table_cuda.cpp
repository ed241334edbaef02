#include "grid/launcher_table.h"
#include "skinny/launchers.h"

namespace mixed_gemm {

const SkinnyKernels::Launchers& skinny_launchers(ElementType element, WeightType weight,
                                                 SkinnyMode mode) {
  return launchers_of<SkinnyKernels>(element, weight, static_cast<int>(mode));
}

}  // namespace mixed_gemm
