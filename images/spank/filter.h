/*
 * Refuses system calls (refused.inc) to the calling thread and all that it starts, for good.
 *
 * It takes CAP_SYS_ADMIN. The other way, `no_new_privs`, would take `sudo` and `su` from users.
 */
#ifndef ISTHMUS_FILTER_H
#define ISTHMUS_FILTER_H

#include <stdbool.h>
#include <stddef.h>

/* Jumps of a filter have eight bits, and have to reach across all numbers of one architecture. */
#define FILTER_MAX_CALLS 240

/* Those of refused.inc. On failure, errno says why. */
bool filter_calls(void);

/* And bpf(2), by which slurmstepd itself still says which devices a job may use. */
bool filter_bpf(void);

#ifdef __x86_64__
/* The same by the numbers of 32-bit programs, which run, too. */
extern const unsigned int filter_ia32_refused[];
extern const size_t filter_ia32_count;
extern const unsigned int filter_ia32_bpf;
#endif

#endif
