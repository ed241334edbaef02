// Deliberate mistakes, to see whether the tests would find them: a build with MIXED_GEMM_MUTANTS
// holds all of them and makes the one that $MIXED_GEMM_MUTANT names; tools/mutants.py runs the
// tests on each and wants every one to fail. In any other build nothing of this file or of what it
// guards is compiled, and machine code is the same as without it:
//   MIXED_GEMM_MUTATED(name)                false
//   MIXED_GEMM_MUTANT(name, wrong, right)   right
//   MIXED_GEMM_IF_MUTATED(name, statements) nothing
// The last two are for code that g++ compiles differently around a constant.
#pragma once

// X(name, who must see it, what is wrong). kCpu: tests that need no GPU; kGpu: those on a GPU;
// kBoth: each of them.
#define MIXED_GEMM_MUTANT_LIST(X)                                                            \
  /* layout/ and dequant/ */                                                                 \
  X(SwappedNibbles, kBoth, "4-bit weights are packed with neighbouring slots exchanged")     \
  X(SwappedRows, kBoth, "8-bit weights are packed with rows k and k + 1 exchanged")          \
  X(PaddingNotZero, kCpu, "the padding of a packed weight holds q = 1")                      \
  X(InterleavedColumn, kBoth, "repacking takes the other column of an interleaved pair")     \
  X(AwqNibbleOrder, kCpu, "AWQ columns are taken in order instead of 0 2 4 6 1 3 5 7")       \
  X(ActOrderIgnored, kBoth, "the permutation of a GPTQ weight is ignored")                   \
  X(FieldAcrossWords, kBoth, "a 3-bit field that crosses words loses its upper bits")        \
  X(ConverterMagic, kBoth, "int4 to fp16 subtracts a bias of 9 instead of 8")                \
  X(OffsetShift, kBoth, "int4 to bf16 with offsets multiplies the odd pairs by 2^126")       \
  X(FoldedRest, kBoth, "what is left of a zero point that is no whole number is dropped")    \
  X(AwqZeroColumn, kBoth, "an AWQ weight meets the zero point of the column beside it")      \
  /* dispatch/ */                                                                            \
  X(KeyWithoutGroup, kCpu, "remembered choices of GEMMs do not tell group sizes apart")      \
  X(KeyWithoutTable, kCpu, "remembered choices of GEMMs outlive a new tuned table")          \
  X(KeyWithoutImage, kCpu, "remembered choices of convolutions know outputs, not images")    \
  X(KeyWithoutOperand, kCpu, "remembered choices of scaled GEMMs take fp8 for int8")         \
  X(RowsOfPaddedK, kBoth, "one group is as long as K, where kernels get K rounded up to 8")  \
  X(LeadingDimension, kBoth, "rows of activations are taken to be K apart")                  \
  X(UnzeroedFlags, kGpu, "the flags of stream-K are not zeroed")                             \
  X(DroppedStream, kGpu, "kernels run on the default stream")                                \
  /* every GEMM */                                                                           \
  X(DroppedSlice, kBoth, "the last slice of a split does nothing")                           \
  X(MissingPartial, kGpu, "stream-K leaves out the last partial sum of a tile")              \
  X(DroppedPartial, kGpu, "the second kernel of a parallel split leaves out the last slice") \
  X(ClusterRank, kGpu, "the sums of the first block of a cluster are left out")              \
  X(Int32Offset, kGpu, "offsets of outputs are counted in 32 bits")                          \
  X(GroupOffByOne, kBoth, "a group takes the scales of the group behind it")                 \
  X(MissingLastZero, kBoth, "the last part of K meets no zero points")                       \
  X(AddedZero, kGpu, "zero points that are to be added are dropped")                         \
  X(BiasOfRaggedTile, kBoth, "the last columns, fewer than a tile, get no bias")             \
  X(ActivationFirst, kBoth, "the activation comes before the bias")                          \
  X(Float16Sums, kBoth, "sums are rounded to fp16 in every step")                            \
  X(PreScaleOfRows, kBoth, "pre_scale is ignored where rows are further apart than K")       \
  X(SkinnyGroup, kGpu, "the skinny family takes the scales of the group before")             \
  X(SkinnyBlock, kGpu, "the skinny family leaves out the last block of a cluster")           \
  X(WgmmaGroup, kGpu, "the wgmma family takes the scales of the group before")               \
  X(WordsOfGroup, kGpu, "int8 by wgmma multiplies the first weights of a k-tile twice")      \
  X(DequantizedZero, kGpu, "dequantizing rows that are no multiple of 8 drops zero points")  \
  /* cpu/ */                                                                                 \
  X(TailRow, kCpu, "the last row of a block that is not full is taken to be zero")           \
  X(PreviousRow, kCpu, "with odd M every block of rows but the first begins a row early")    \
  X(KRoundedUp, kCpu, "activations behind the end of K, up to a multiple of 8, are read")    \
  X(LastUnit, kCpu, "the last columns of a small product are not computed")                  \
  X(LastPanel, kCpu, "the last panel of a large product is not computed")                    \
  X(Avx2Ties, kCpu, "AVX2 alone rounds ties to bf16 up instead of to even")                  \
  /* 8-bit GEMMs and their activations */                                                    \
  X(ScaleOfRow, kBoth, "the last row of a tile has the scale of the row before")             \
  X(AzpWraps, kBoth, "the product with a zero point is made in 32 bits")                     \
  X(AzpOfRow, kBoth, "a row takes the zero point of the row before it")                      \
  X(RoundsHalfAway, kBoth, "activations are rounded half away from zero")                    \
  X(AzpSign, kBoth, "the zero point of a row is chosen with the wrong sign")                 \
  X(Float8ByInverse, kBoth, "activations become float8 by a product with the inverse scale") \
  X(ScaleOfLine, kGpu, "a block of K of float8 takes the scales of the block before")        \
  X(ScaleOfHalf, kGpu, "the lower rows of a float8 tile take the scales of the upper ones")  \
  X(BlockSum, kBoth, "block_quant_gemm drops the offsets of the weight")                     \
  X(Float8Columns, kCpu, "columns of float8 take the scales of the first block of columns")  \
  X(Float8Steps, kCpu, "AVX-512 alone rounds to float8 below 2^-6 as above it")              \
  X(GivenSum, kBoth, "given sums of a weight are all those of its first block or channel")   \
  /* AWQ */                                                                                  \
  X(AwqZeroRow, kBoth, "a group takes the zero points of the group before it")               \
  X(AwqWarp, kGpu, "the sums of the last warp that shares out K are left out")               \
  /* sums over ranks */                                                                      \
  X(OneSlot, kCpu, "a sum over ranks overwrites what the one before it sent")                \
  X(OldUnits, kCpu, "the last epoch with an old half leaves units of the other slot")        \
  X(HalfUnit, kCpu, "a unit counts as received when its second word has come")               \
  /* convolutions */                                                                         \
  X(PaddingValue, kBoth, "pixels outside of an int8 image are 0 instead of the zero point")  \
  X(EdgeDilation, kBoth, "the last tap of a line is not dilated")                            \
  X(RaggedBlock, kCpu, "the last channels, fewer than a block, take the scales before")      \
  X(TapGroups, kGpu, "scales go on from tap to tap instead of starting anew")                \
  X(Truncates, kBoth, "int8 outputs of a convolution are truncated instead of rounded")

#if defined(MIXED_GEMM_MUTANTS)
namespace mixed_gemm {

enum class Mutant : int {
  kNone,
#define MIXED_GEMM_NAME_MUTANT(name, seen_by, what) k##name,
  MIXED_GEMM_MUTANT_LIST(MIXED_GEMM_NAME_MUTANT)
#undef MIXED_GEMM_NAME_MUTANT
};

// A variable and no function: cpu/vector_kernels.h says why.
extern const int kActiveMutant;

// A .cu file has its copy of it in constant memory, which prepare_mutant() fills on the current
// device. Returns a cudaError_t.
using SetMutant = int (*)(int mutant);
bool register_mutant_of_file(SetMutant set);
int prepare_mutant();

#if defined(__CUDACC__)
namespace {
__constant__ int mutant_of_file;
[[maybe_unused]] const bool kMutantIsRegistered = register_mutant_of_file([](int mutant) {
  return static_cast<int>(cudaMemcpyToSymbol(mutant_of_file, &mutant, sizeof(mutant)));
});
}  // namespace
#endif

}  // namespace mixed_gemm

#if defined(__CUDA_ARCH__)
#define MIXED_GEMM_MUTATED(name) \
  (::mixed_gemm::mutant_of_file == static_cast<int>(::mixed_gemm::Mutant::k##name))
#else
#define MIXED_GEMM_MUTATED(name) \
  (::mixed_gemm::kActiveMutant == static_cast<int>(::mixed_gemm::Mutant::k##name))
#endif
#define MIXED_GEMM_MUTANT(name, wrong, right) (MIXED_GEMM_MUTATED(name) ? (wrong) : (right))
#define MIXED_GEMM_IF_MUTATED(name, ...) \
  do {                                   \
    if (MIXED_GEMM_MUTATED(name)) {      \
      __VA_ARGS__                        \
    }                                    \
  } while (false)
#define MIXED_GEMM_PREPARE_MUTANT() (::mixed_gemm::prepare_mutant())
#else
#define MIXED_GEMM_MUTATED(name) false
#define MIXED_GEMM_MUTANT(name, wrong, right) (right)
#define MIXED_GEMM_IF_MUTATED(name, ...) static_cast<void>(0)
#define MIXED_GEMM_PREPARE_MUTANT() 0
#endif
