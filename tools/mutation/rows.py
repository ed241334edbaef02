"""The mistakes: a name, where tests must see it, and what is wrong. The files beside this one say
where each is made.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Mutant:
    """A mistake.

    seen_by: "Cpu", tests that need no GPU; "Gpu", those on a GPU; "Both", each of them.
    """

    name: str
    seen_by: str
    what: str


_ROWS = (
    # layout/ and dequant/
    ("SwappedNibbles", "Both", "4-bit weights are packed with neighbouring slots exchanged"),
    ("SwappedRows", "Both", "8-bit weights are packed with rows k and k + 1 exchanged"),
    ("PaddingNotZero", "Cpu", "the padding of a packed weight holds q = 1"),
    ("CodePlaces", "Both", "8-bit codes lie in the slot beside theirs"),
    ("FloatSign", "Both", "the sign of a float lies in the place of its neighbour's"),
    ("FloatMultiplier", "Both", "scales do not take back the power of two of converted floats"),
    ("BookHalf", "Both", "the upper codes of a book are looked up in its lower half"),
    ("BookOfKernels", "Gpu", "all books have the values of the one whose kernels they share"),
    ("ColumnFactor", "Both", "the sums of columns of floats do not meet their factors"),
    ("InterleavedColumn", "Both", "repacking takes the other column of an interleaved pair"),
    ("AwqNibbleOrder", "Cpu", "AWQ columns are taken in order instead of 0 2 4 6 1 3 5 7"),
    ("ActOrderIgnored", "Both", "the permutation of a GPTQ weight is ignored"),
    ("FieldAcrossWords", "Both", "a 3-bit field that crosses words loses its upper bits"),
    ("ConverterMagic", "Both", "int4 to fp16 subtracts a bias of 9 instead of 8"),
    ("OffsetShift", "Both", "int4 to bf16 with offsets multiplies the odd pairs by 2^126"),
    ("FoldedRest", "Both", "what is left of a zero point that is no whole number is dropped"),
    ("AwqZeroColumn", "Both", "an AWQ weight meets the zero point of the column beside it"),
    # dispatch/
    ("KeyWithoutWeight", "Cpu", "remembered choices of GEMMs do not tell weight types apart"),
    ("TunedWeight", "Cpu", "lines of format 1 of the tuned table are of the other weight type"),
    ("ModeRows", "Both", "groups of half a k-tile get one row of scales a k-tile"),
    ("LauncherBeside", "Gpu", "a launcher of the mode before the problem's runs"),
    ("KeyWithoutGroup", "Cpu", "remembered choices of GEMMs do not tell group sizes apart"),
    ("KeyWithoutTable", "Cpu", "remembered choices of GEMMs outlive a new tuned table"),
    ("KeyWithoutImage", "Cpu", "remembered choices of convolutions know outputs, not images"),
    ("KeyWithoutOperand", "Cpu", "remembered choices of scaled GEMMs take fp8 for int8"),
    ("TorchOnHopper", "Cpu", "torch multiplies float8 on compute capability 9.0, too"),
    ("RowsOfPaddedK", "Both", "one group is as long as K, where kernels get K rounded up to 8"),
    ("LeadingDimension", "Both", "rows of activations are taken to be K apart"),
    ("UnzeroedFlags", "Gpu", "the flags of stream-K are not zeroed"),
    ("DroppedStream", "Gpu", "kernels run on the default stream"),
    # every GEMM
    ("DroppedSlice", "Both", "the last slice of a split does nothing"),
    ("MissingPartial", "Gpu", "stream-K leaves out the last partial sum of a tile"),
    ("DroppedPartial", "Gpu", "the second kernel of a parallel split leaves out the last slice"),
    ("DroppedFactor", "Gpu", "the second kernel of a parallel split drops the scales of channels"),
    ("ClusterRank", "Gpu", "the sums of the first block of a cluster are left out"),
    ("Int32Offset", "Gpu", "offsets of outputs are counted in 32 bits"),
    ("GroupOffByOne", "Both", "a group takes the scales of the group behind it"),
    ("MissingLastZero", "Both", "the last part of K meets no zero points"),
    ("AddedZero", "Gpu", "zero points that are to be added are dropped"),
    ("BiasOfRaggedTile", "Both", "the last columns, fewer than a tile, get no bias"),
    ("ActivationFirst", "Both", "the activation comes before the bias"),
    ("Float16Sums", "Both", "sums are rounded to fp16 in every step"),
    ("PreScaleOfRows", "Both", "pre_scale is ignored where rows are further apart than K"),
    ("SkinnyGroup", "Gpu", "the skinny family takes the scales of the group before"),
    ("SkinnyBlock", "Gpu", "the skinny family leaves out the last block of a cluster"),
    ("WgmmaGroup", "Gpu", "the wgmma family takes the scales of the group before"),
    ("WordsOfGroup", "Gpu", "int8 by wgmma multiplies the first weights of a k-tile twice"),
    ("DequantizedZero", "Gpu", "dequantizing rows that are no multiple of 8 drops zero points"),
    ("LastChoiceFirst", "Both", "the rows of an expert are in the order of the last choice first"),
    ("WeightOfFirst", "Both", "all rows of a token are added with the weight of its first choice"),
    # cpu/
    ("TailRow", "Cpu", "the last row of a block that is not full is taken to be zero"),
    ("PreviousRow", "Cpu", "with odd M every block of rows but the first begins a row early"),
    ("KRoundedUp", "Cpu", "activations behind the end of K, up to a multiple of 8, are read"),
    ("LastUnit", "Cpu", "the last columns of a small product are not computed"),
    ("LastPanel", "Cpu", "the last panel of a large product is not computed"),
    ("BookInPairs", "Cpu", "numbers of a code book round to bf16 whatever the activations are"),
    ("RoundedPairs", "Cpu", "weights times scales are made bf16 pairs though they round"),
    ("UnscaledSlab", "Cpu", "slabs of weights times scales have the weights alone"),
    ("BookPair", "Cpu", "AVX-512 takes the first code of a book for both of a pair"),
    ("Avx2SmallFloat8", "Cpu", "AVX2 decodes subnormal numbers of FP8 weights 2^-6 too low"),
    ("Avx512SmallFloat8", "Cpu", "AVX-512 decodes subnormal numbers of FP8 weights as normal ones"),
    ("Avx2Ties", "Cpu", "AVX2 alone rounds ties to bf16 up instead of to even"),
    ("ExpertBefore", "Cpu", "rows meet the weight of the expert before theirs"),
    ("RowsOfNone", "Cpu", "outputs of rows that belong to no expert are left as they were"),
    ("UnitsOfExperts", "Cpu", "threads share the columns of experts out so that some are missing"),
    ("AreaBelow", "Cpu", "GELU of positive numbers takes the area on the other side of the curve"),
    ("LowestUp", "Cpu", "a limit of a gated activation leaves low numbers of up as they are"),
    ("LastGates", "Cpu", "the last numbers of a row keep their gates as they came"),
    # 8-bit GEMMs and their activations
    ("ScaleOfRow", "Both", "the last row of a tile has the scale of the row before"),
    ("AzpWraps", "Both", "the product with a zero point is made in 32 bits"),
    ("AzpOfRow", "Both", "a row takes the zero point of the row before it"),
    ("RoundsHalfAway", "Both", "activations are rounded half away from zero"),
    ("AzpSign", "Both", "the zero point of a row is chosen with the wrong sign"),
    ("Float8ByInverse", "Both", "activations become float8 by a product with the inverse scale"),
    ("ScaleOfLine", "Gpu", "a block of K of float8 takes the scales of the block before"),
    ("ScaleOfHalf", "Gpu", "the lower rows of a float8 tile take the scales of the upper ones"),
    ("SkinnyTail", "Gpu", "skinny 8-bit products meet old tokens behind the end of K"),
    ("SkinnyWarp", "Gpu", "skinny 8-bit products leave out the sums of the last warp"),
    ("BlockSum", "Both", "block_quant_gemm drops the offsets of the weight"),
    ("Float8Columns", "Cpu", "columns of float8 take the scales of the first block of columns"),
    ("UnalignedForCublas", "Cpu", "cuBLAS gets float8 operands that begin at any byte"),
    ("ScalesOfFirstBlock", "Both", "torch adds up blocks of K with the scales of the first"),
    ("Float8Steps", "Cpu", "AVX-512 alone rounds to float8 below 2^-6 as above it"),
    ("GivenSum", "Both", "given sums of a weight are all those of its first block or channel"),
    # AWQ
    ("AwqZeroRow", "Both", "a group takes the zero points of the group before it"),
    ("AwqWarp", "Gpu", "the sums of the last warp that shares out K are left out"),
    # sums over ranks
    ("OneSlot", "Cpu", "a sum over ranks overwrites what the one before it sent"),
    ("OldUnits", "Cpu", "the last epoch with an old half leaves units of the other slot"),
    ("HalfUnit", "Cpu", "a unit counts as received when its second word has come"),
    # convolutions
    ("PaddingValue", "Both", "pixels outside of an int8 image are 0 instead of the zero point"),
    ("EdgeDilation", "Both", "the last tap of a line is not dilated"),
    ("RaggedBlock", "Cpu", "the last channels, fewer than a block, take the scales before"),
    ("TapGroups", "Gpu", "scales go on from tap to tap instead of starting anew"),
    ("Truncates", "Both", "int8 outputs of a convolution are truncated instead of rounded"),
)

MUTANTS = tuple(Mutant(*row) for row in _ROWS)
