// The choice of a tile for the 8-bit GEMMs where there is none, and where GPUs differ in their
// rates alone.

#include <gtest/gtest.h>

#include "dense/scaled.h"
#include "dispatch/select.h"
#include "hopper/support.h"
#include "scaled_wgmma/config.h"
namespace mixed_gemm {
namespace {

const DeviceInfo kSmall = with_default_rates({80, 108, 60000, 0, 0});
const DeviceInfo kHopper = with_default_rates({90, 132, 232448, 0, 0});

ScaledMmProblem scaled(int64_t m, int64_t n, int64_t k) {
  ScaledMmProblem p;
  p.m = m;
  p.n = n;
  p.k = k;
  return p;
}

TEST(ScaledSelect, NoTileIsNoChoiceAndSaysWhatIsMissing) {
  const ScaledMmProblem p = scaled(16, 4096, 4097);  // an odd K, for which skinny has no kernel
  for (int i = 0; i < 2; ++i) EXPECT_FALSE(choose(p, kSmall));  // remembered as well
  EXPECT_EQ(why_none(p, kSmall),
            "no tile runs this on the device: the smallest, scaled_m16n64s8, needs 82048 bytes of "
            "shared memory, the device has 60000");
  BlockGemmProblem block;
  block.m = block.n = block.k = block.block_size = 64;
  EXPECT_TRUE(ranked(block, kSmall).empty());
  EXPECT_EQ(why_none(block, kSmall),
            "no tile runs this on the device: the smallest, block_m16n64s6, needs 70528 bytes of "
            "shared memory, the device has 60000");
}

TEST(ScaledSelect, MoreTilesThanCanBeCountedAreNoChoice) {
  ScaledMmProblem p = scaled(int64_t{1} << 30, int64_t{1} << 30, 64);
  EXPECT_FALSE(choose(p, kHopper));
  EXPECT_EQ(why_none(p, kHopper),
            "no tile runs this on the device: the largest, scaled_m128n256s4, has 35184372088832 "
            "tiles or parts of them, more than can be counted");
  p.operand = OperandType::kFloat8E4M3;
  p.k =
      int64_t{1} << 30;  // by parts of K it is 2^68: the product must not come round to a small one
  for (const char* name : {"scaled_m16n64s8_streamk1", "scaled_m128n256s4_parallel4"}) {
    EXPECT_NE(why_not(*parse_config<ScaledMmProblem>(name), p, kHopper), "") << name;
  }
  EXPECT_FALSE(choose(p, kHopper));
}

TEST(ScaledSelect, NoBuildPromisesKernelsThatItLacks) {
  Build build;  // for 8.0 alone
  EXPECT_EQ(why_not_operand(OperandType::kInt8, kHopper, build), "");
  const std::string no_fp8 = why_not_operand(OperandType::kFloat8E4M3, kHopper, build);
  EXPECT_NE(no_fp8.find("no kernels in this build"), std::string::npos) << no_fp8;
  const std::string no_wgmma = why_not_wgmma(kHopper, build);
  EXPECT_NE(no_wgmma.find("not in this build"), std::string::npos) << no_wgmma;
  build.fp8 = build.wgmma = true;
  EXPECT_EQ(why_not_operand(OperandType::kFloat8E4M3, kHopper, build), "");
  EXPECT_EQ(why_not_wgmma(kHopper, build), "");
}

TEST(ScaledSelect, ChoicesOfGpusThatDifferInBandwidthAreKeptApart) {
  DeviceInfo fast = kHopper, slow = kHopper;
  fast.dram_gb_per_s = 100000;
  slow.dram_gb_per_s = 50;
  int different = 0;
  for (const int64_t m : {1, 16, 64, 300, 1000, 4096}) {
    const ScaledMmProblem p = scaled(m, 4096, 4096);
    const std::string expected = config_name<ScaledMmProblem>(ranked(p, slow).front());
    different += expected != config_name<ScaledMmProblem>(*choose(p, fast));
    EXPECT_EQ(config_name<ScaledMmProblem>(*choose(p, slow)), expected);
  }
  EXPECT_GT(different, 0);
}

ScaledMmProblem float8_blocks(int64_t m, int64_t n, int64_t k, int64_t block_n = 128,
                              int64_t block_k = 128) {
  ScaledMmProblem p = scaled(m, n, k);
  p.operand = OperandType::kFloat8E4M3;
  p.block_n = block_n, p.block_k = block_k;
  p.scale_a_stride = p.scale_b_stride = ceil_div(k, block_k);
  return p;
}

std::string chosen(const ScaledMmProblem& p, const DeviceInfo& device) {
  const auto choice = choose(p, device);
  return choice ? config_name<ScaledMmProblem>(*choice) : "";
}

// mma.sync multiplies float8 by way of float16 on Hopper: the choice there for few rows alone.
TEST(ScaledSelect, Float8IsMultipliedWhereTheGpuCan) {
  const DeviceInfo ada = with_default_rates({89, 128, 101376, 0, 0});
  for (const int64_t m : {1, 16, 64, 200, 1024, 4096}) {
    for (const int64_t n : {64, 100, 1024, 8192, 28672}) {
      for (const int64_t k : {1, 128, 1000, 4096, 8192}) {
        ScaledMmProblem p = scaled(m, n, k);
        p.operand = OperandType::kFloat8E4M3;
        const std::string on_hopper = chosen(p, kHopper), on_ada = chosen(p, ada);
        const bool vectors = k % 16 == 0;  // skinny kernels emulate it as fast as memory is
        EXPECT_TRUE(on_hopper.rfind("wgmma_", 0) == 0 ||
                    (vectors && on_hopper.rfind("skinny_", 0) == 0))
            << on_hopper << " " << m << " " << n << " " << k;
        EXPECT_TRUE(on_ada.rfind("scaled_", 0) == 0 || (vectors && on_ada.rfind("skinny_", 0) == 0))
            << on_ada << " " << m << " " << n << " " << k;
      }
    }
  }
  ScaledMmProblem empty = scaled(4, 64, 0);  // TMA has no boxes of no bytes
  empty.operand = OperandType::kFloat8E4M3;
  EXPECT_EQ(chosen(empty, kHopper).rfind("scaled_", 0), 0u);
}

TEST(ScaledSelect, ScalesOfBlocks) {
  const DeviceInfo ada = with_default_rates({89, 128, 101376, 0, 0});
  for (const ScaledMmProblem& p : {float8_blocks(1, 8192, 8192), float8_blocks(77, 100, 130)}) {
    EXPECT_EQ(chosen(p, kHopper).rfind("wgmma_", 0), 0u);
    EXPECT_EQ(chosen(p, ada), "torch.mm");
    EXPECT_EQ(why_none(p, ada),
              "no tile runs this on the device: the smallest, wgmma_m64n64s6, needs wgmma, which "
              "compute capability 9.0 has alone; this device has 8.9");
  }
  const ScaledMmProblem empty = float8_blocks(3, 64, 0);  // the bias alone
  EXPECT_EQ(chosen(empty, kHopper).rfind("scaled_", 0), 0u);
  EXPECT_EQ(chosen(empty, ada), "torch.mm");
  const auto refusal = [](const ScaledMmProblem& p) {
    return why_not(*parse_config<ScaledMmProblem>("wgmma_m128n256s4"), p, kHopper);
  };
  EXPECT_EQ(refusal(float8_blocks(8, 256, 256)), "");
  EXPECT_EQ(refusal(float8_blocks(8, 256, 256, 64, 128)),
            "takes scales of blocks of 128 x 128 only, got block_n=64, block_k=128");
  EXPECT_EQ(refusal(float8_blocks(8, 256, 256, 128, 256)),
            "takes scales of blocks of 128 x 128 only, got block_n=128, block_k=256");
  ScaledMmProblem far = float8_blocks(1 << 20, 256, 256);
  far.scale_a_stride = 1 << 12;
  EXPECT_EQ(refusal(far), "takes scales of blocks in at most 2^31 - 1 elements, got 4294967296");
  const auto few = *parse_config<ScaledMmProblem>("wgmma_m16n64s10");
  const auto handed = *parse_config<ScaledMmProblem>("wgmma_m16n64s10_streamk1");
  EXPECT_EQ(why_not(few, float8_blocks(8, 256, 256), kHopper), "");
  EXPECT_EQ(why_not(few, scaled(8, 256, 256), kHopper), "multiplies float8 only");
  EXPECT_NE(why_not(handed, float8_blocks(8, 256, 256), kHopper), "");
  ScaledMmProblem int8 = float8_blocks(8, 256, 256);
  int8.operand = OperandType::kInt8;
  EXPECT_EQ(refusal(int8), "takes scales of blocks for float8 only");
}

// Few rows of any weight that is read in vectors of 16 bytes are bound by memory.
TEST(ScaledSelect, SkinnyKernelsReadWholeVectors) {
  for (const OperandType operand : {OperandType::kInt8, OperandType::kFloat8E4M3}) {
    ScaledMmProblem p = scaled(4, 4096, 4096);
    p.operand = operand;
    EXPECT_EQ(chosen(p, kHopper), "skinny_m8n16w8");
    p.m = 16;
    p.n = 28672;
    EXPECT_EQ(chosen(p, kHopper).find("skinny_m8"), std::string::npos);
    p.m = 64;
    EXPECT_NE(chosen(p, kHopper).rfind("skinny_", 0), 0u);
    p = scaled(1, 4096, 4104);
    p.operand = operand;
    EXPECT_NE(chosen(p, kHopper).rfind("skinny_", 0), 0u);
    const auto skinny = *parse_config<ScaledMmProblem>("skinny_m8n16w8");
    EXPECT_EQ(why_not(skinny, p, kHopper),
              "reads 16 elements of K at once: K must be a positive multiple of 16, got 4104");
    p.k = 0;
    EXPECT_NE(why_not(skinny, p, kHopper), "");
    p.k = 16;
    EXPECT_EQ(why_not(skinny, p, kHopper), "");
    p.m = int64_t{1} << 31;
    EXPECT_NE(why_not(skinny, p, kHopper), "");
    const auto split = *parse_config<ScaledMmProblem>("skinny_m8n16w8_parallel2");
    EXPECT_EQ(why_not(split, scaled(1, 64, 256), kHopper),
              "shares out K among the warps of a block alone");
  }
  EXPECT_EQ(why_not(*parse_config<ScaledMmProblem>("skinny_m16n16w8"), float8_blocks(1, 256, 256),
                    kHopper),
            "takes scales of rows and columns, not of blocks");
}

// The remembered choice of a problem is not that of the same one with scales of blocks.
TEST(ScaledSelect, BlocksAreAnotherProblem) {
  const DeviceInfo ada = with_default_rates({89, 128, 101376, 0, 0});
  ScaledMmProblem p = float8_blocks(5, 640, 640);
  EXPECT_EQ(chosen(p, ada), "torch.mm");
  p.block_k = p.block_n = p.scale_a_stride = p.scale_b_stride = 0;
  EXPECT_NE(chosen(p, ada), "torch.mm");
}

// ---- float8 that torch multiplies ---------------------------------------------------------------

DeviceInfo gpu(int sm) { return with_default_rates({sm, 132, 232448, 0, 0}); }

ScaledMmProblem float8(int64_t m, int64_t n, int64_t k) {
  ScaledMmProblem p = scaled(m, n, k);
  p.operand = OperandType::kFloat8E4M3;
  return p;
}

std::vector<std::string> names(const ScaledMmProblem& p, const DeviceInfo& device) {
  std::vector<std::string> all;
  for (const Choice& c : ranked(p, device)) all.push_back(config_name<ScaledMmProblem>(c));
  return all;
}

TEST(ScaledInTorch, IsTheChoiceBehindHopperAloneWhereCublasTakesIt) {
  for (const int64_t m : {1, 64, 4096}) {
    for (const int64_t n : {16, 100, 4096}) {
      for (const int64_t k : {16, 130, 4096}) {
        const ScaledMmProblem p = float8(m, n, k);
        const bool takes = n != 100 && k != 130;
        for (const int sm : {89, 90, 100, 120}) {
          const auto all = names(p, gpu(sm));
          ASSERT_FALSE(all.empty());
          EXPECT_EQ(chosen(p, gpu(sm)) == "torch._scaled_mm", takes && sm > 90) << sm;
          EXPECT_EQ(all.front() == "torch._scaled_mm", takes && sm > 90) << sm;
          EXPECT_EQ(all.back() == "torch._scaled_mm", takes && sm <= 90) << sm;
          EXPECT_EQ(prefers_torch(p, gpu(sm)), takes && sm > 90) << sm;
        }
      }
    }
  }
}

TEST(ScaledInTorch, AddsUpBlocksThatNoKernelHas) {
  for (const int64_t block_n : {1, 64, 128}) {
    for (const int64_t block_k : {64, 128, 4096}) {
      for (const int sm : {80, 86, 89, 90, 100, 120}) {
        const ScaledMmProblem p = float8_blocks(5, 256, 256, block_n, block_k);
        const bool ours = sm == 90 && block_n == 128 && block_k == 128;
        const auto all = names(p, gpu(sm));
        EXPECT_EQ(all.front() == "torch.mm", !ours);
        EXPECT_EQ(all.back(), "torch.mm");
        EXPECT_EQ(all.size() > 1, ours);
        EXPECT_EQ(prefers_torch(p, gpu(sm)), !ours);
        EXPECT_EQ(why_no_kernel(p, gpu(sm)).empty(), ours);
      }
    }
  }
}

TEST(ScaledInTorch, IsNoChoiceWhereItWouldBeTheOnlyOne) {
  const ScaledMmProblem p = float8(int64_t{1} << 30, int64_t{1} << 30, int64_t{1} << 30);
  const Choice by_name = *parse_config<ScaledMmProblem>("torch._scaled_mm");
  EXPECT_EQ(why_not(by_name, p, kHopper), "");
  EXPECT_TRUE(ranked(p, kHopper).empty());
}

TEST(ScaledInTorch, SaysWhyItIsTheChoice) {
  const auto reason = [](const ScaledMmProblem& p, const DeviceInfo& device) {
    return select(p, device, ranked(p, device)).reason;
  };
  EXPECT_EQ(reason(float8(16, 4096, 4096), gpu(100)),
            "mma.sync with fp8 operands is slow on GPUs behind compute capability 9.0, whose "
            "instructions no kernel of ours uses: torch._scaled_mm (cuBLAS) runs it");
  EXPECT_EQ(
      reason(float8_blocks(16, 256, 256, 64, 128), kHopper),
      "no kernel for this GPU multiplies float8 with scales of blocks of 64 x 128: torch adds "
      "up the blocks one by one, in fp32");
  EXPECT_EQ(reason(float8(16, 4096, 4096), kHopper), "least time predicted by the cost model");
}

TEST(ScaledInTorch, RefusesWhatItCannotMultiply) {
  const Choice rows = *parse_config<ScaledMmProblem>("torch._scaled_mm"),
               blocks = *parse_config<ScaledMmProblem>("torch.mm");
  EXPECT_EQ(config_name<ScaledMmProblem>(rows), "torch._scaled_mm");
  EXPECT_EQ(config_name<ScaledMmProblem>(blocks), "torch.mm");
  EXPECT_FALSE(parse_config<ScaledMmProblem>("torch"));
  for (const Choice& c : {rows, blocks}) {
    EXPECT_EQ(why_not(c, scaled(16, 64, 64), kHopper), "multiplies float8 only");
  }
  EXPECT_EQ(why_not(rows, float8_blocks(16, 256, 256), kHopper),
            "takes scales of rows and columns, not of blocks");
  EXPECT_EQ(why_not(blocks, float8(16, 256, 256), kHopper),
            "takes scales of blocks, not of rows and columns");
  EXPECT_EQ(why_not(rows, float8(16, 256, 256), gpu(86)), "needs compute capability 8.9 or newer");
  for (const auto& [n, k] :
       std::vector<std::pair<int64_t, int64_t>>{{8, 64}, {64, 8}, {64, 0}, {100, 130}}) {
    EXPECT_EQ(why_not(rows, float8(16, n, k), kHopper),
              "takes N and K in positive multiples of 16, got N=" + std::to_string(n) +
                  ", K=" + std::to_string(k));
  }
}

TEST(ScaledInTorch, LayersMakeDenseWhatNoKernelMultiplies) {
  EXPECT_EQ(why_no_kernel(float8(1, 64, 64), gpu(86)),
            "no GPU before compute capability 8.9 multiplies float8");
  EXPECT_EQ(why_no_kernel(float8(1, 100, 100), gpu(89)), "");
  EXPECT_EQ(why_no_kernel(scaled(1, 64, 64), gpu(80)), "");
  EXPECT_EQ(why_no_kernel(float8_blocks(1, 64, 64), gpu(100)),
            "no kernel for this GPU multiplies float8 with scales of blocks of 128 x 128");
}

// Every instruction of a tile has one block of columns, and the block that its first column is in.
TEST(ScaledWgmma, InstructionsHaveOneScaleOfColumns) {
  for (const TileConfig& t : kWgmmaScaledTileConfigs) {
    const int columns = wgmma_fp8_columns(t), n = 5 * 128 + 17;
    const int blocks = static_cast<int>(ceil_div(n, kScaleBlock));
    EXPECT_EQ(t.warp_n % columns, 0);
    EXPECT_LE(columns, 128);
    for (int column0 = 0; column0 < n; column0 += t.n) {
      for (int group = 0; group < t.n; group += t.warp_n) {
        for (int part = 0; part < t.warp_n / columns; ++part) {
          const int first = column0 + group + part * columns;
          // As block_scales.cuh counts parts: side by side they are blocks side by side.
          const int block = scale_block(column0 + group + part * kScaleBlock, blocks);
          for (int column = first; column < first + columns && column < n; ++column) {
            EXPECT_EQ(block, column / kScaleBlock);
          }
          EXPECT_LT(block, blocks);
        }
      }
    }
  }
}

// A thread that multiplies has registers for sums, for products of an instruction beside them, and
// some 40 for everything else (hopper/warp_roles.cuh has 104 and 232).
TEST(ScaledWgmma, SumsAndProductsFitIntoRegisters) {
  for (const TileConfig& t : kWgmmaScaledTileConfigs) {
    EXPECT_LE(t.warp_n / 2 + wgmma_fp8_columns(t) / 2 + 40, t.min_blocks == 1 ? 232 : 104);
    EXPECT_LE(t.min_blocks * (wgmma_scaled_smem_bytes(t) + 1024), kHopper.smem_bytes + 1024);
  }
}

}  // namespace
}  // namespace mixed_gemm
