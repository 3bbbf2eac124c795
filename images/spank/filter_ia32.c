/* The numbers of system calls of 32-bit programs: by a file of its own, as names are the same and numbers are not. */
#include "filter.h"

#ifdef __x86_64__
#include <asm/unistd_32.h>

const unsigned int filter_ia32_refused[] = {
#include "refused.inc"
};
enum { COUNT = sizeof(filter_ia32_refused) / sizeof(filter_ia32_refused[0]) };
_Static_assert(COUNT <= FILTER_MAX_CALLS, "a jump does not reach across that many");
const size_t filter_ia32_count = COUNT;
const unsigned int filter_ia32_bpf = __NR_bpf;
#endif
