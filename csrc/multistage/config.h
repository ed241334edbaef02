// THE list of compiled multistage tiles. The launchers expand it at compile time, why_not and the
// cost model read it at run time; a new tile is one line here.
#pragma once
#include "core/tile.h"

namespace mixed_gemm {

constexpr TileConfig kTileConfigs[] = {
    {16, 128, 16, 32, 6, 4, 1, 5},  //
    {16, 256, 16, 64, 6, 2, 1, 4},  //
    {32, 128, 32, 32, 4, 3},        //
    {32, 256, 32, 64, 4, 2},        //
    {64, 128, 64, 32, 4, 3},        //
    {128, 256, 128, 32, 3, 1},
};
constexpr int kNumTileConfigs = sizeof(kTileConfigs) / sizeof(kTileConfigs[0]);

}  // namespace mixed_gemm
