// To be included before the headers with AVX-512 intrinsics: GCC 12 warns about its own
// _mm512_undefined_*() in every one that it inlines (GCC bug 105593).
#pragma once
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
