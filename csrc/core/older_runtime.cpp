// Functions that headers of a newer C library and libstdc++ call, and that the oldest ones a wheel
// is for do not have (manylinux_2_28: glibc 2.28, GLIBCXX_3.4.24). Compiled for a wheel only, where
// the library is linked against stubs of that glibc (tools/glibc_stubs.py).
//
// The linker's names are given by hand, so that each is hidden whatever its header says: none of
// them replaces a function of another library.
#include <ios>
#include <new>
#include <sstream>
#include <string>

static_assert(__cplusplus < 202002L, "text_of would call itself");

#define MIXED_GEMM_HIDDEN_AS(name) asm(name) __attribute__((visibility("hidden")))

namespace mixed_gemm {

// glibc 2.32: whether the process has one thread. 0 is always right: shared_ptr counts atomically.
extern char libc_single_threaded MIXED_GEMM_HIDDEN_AS("__libc_single_threaded");
char libc_single_threaded = 0;

// GLIBCXX_3.4.29.
[[noreturn]] void throw_bad_array_new_length()
    MIXED_GEMM_HIDDEN_AS("_ZSt28__throw_bad_array_new_lengthv");
void throw_bad_array_new_length() { throw std::bad_array_new_length(); }

// GLIBCXX_3.4.26: constructors without arguments, for which older headers call those with a mode.
void construct(std::ostringstream* text)
    MIXED_GEMM_HIDDEN_AS("_ZNSt7__cxx1119basic_ostringstreamIcSt11char_traitsIcESaIcEEC1Ev");
void construct(std::ostringstream* text) { new (text) std::ostringstream(std::ios_base::out); }

void construct(std::stringstream* text)
    MIXED_GEMM_HIDDEN_AS("_ZNSt7__cxx1118basic_stringstreamIcSt11char_traitsIcESaIcEEC1Ev");
void construct(std::stringstream* text) {
  new (text) std::stringstream(std::ios_base::in | std::ios_base::out);
}

// GLIBCXX_3.4.29, for C++20: here, in C++17, str() is the older one.
std::string text_of(const std::stringbuf* buffer)
    MIXED_GEMM_HIDDEN_AS("_ZNKRSt7__cxx1115basic_stringbufIcSt11char_traitsIcESaIcEE3strEv");
std::string text_of(const std::stringbuf* buffer) { return buffer->str(); }

// The text of a buffer that is about to go.
std::string text_out_of(std::stringbuf* buffer)
    MIXED_GEMM_HIDDEN_AS("_ZNOSt7__cxx1115basic_stringbufIcSt11char_traitsIcESaIcEE3strEv");
std::string text_out_of(std::stringbuf* buffer) {
  std::string text = buffer->str();
  buffer->str("");
  return text;
}

}  // namespace mixed_gemm
