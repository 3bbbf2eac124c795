#define _GNU_SOURCE
#include "filter.h"

#include <asm/unistd.h>
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdint.h>
#include <unistd.h>

#if defined(__x86_64__)
#define NATIVE AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define NATIVE AUDIT_ARCH_AARCH64
#else
#error "the numbers of this processor's system calls are not known"
#endif

/* For two architectures: their numbers with seven instructions around them; and an answer for all others. */
enum { MAX_CODE = 2 * (FILTER_MAX_CALLS + 7) + 1 };

struct program {
	struct sock_filter code[MAX_CODE];
	size_t length;
};

static const unsigned int refused[] = {
#include "refused.inc"
};
enum { REFUSED = sizeof(refused) / sizeof(refused[0]) };
_Static_assert(REFUSED <= FILTER_MAX_CALLS, "a jump does not reach across that many");

static const unsigned int bpf = __NR_bpf;

static void add(struct program *program, struct sock_filter instruction)
{
	program->code[program->length++] = instruction;
}

static void answer(struct program *program, uint32_t what)
{
	add(program, (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, what));
}

/*
 * If the call is one of this architecture, it is allowed or refused; else what follows is asked.
 *
 *     architecture?  ── another ─────────────────────────────┐
 *     x32?           ── yes: as a kernel without it answers  │
 *     number 1?      ── yes ──┐                              │
 *     number 2? …    ── yes ──┤                              │
 *     allow                   │                              │
 *     refuse         ◄────────┘                              │
 *                                                            ▼
 */
static void add_calls(struct program *program, uint32_t architecture, const unsigned int *numbers, size_t count)
{
	size_t start = program->length;

	add(program, (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch)));
	add(program, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, architecture, 0, 0));
	add(program, (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)));
#ifdef __X32_SYSCALL_BIT
	/* Of the native architecture, with numbers of their own: nobody has such programs. */
	add(program, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, __X32_SYSCALL_BIT, 0, 1));
	answer(program, SECCOMP_RET_ERRNO | ENOSYS);
#endif
	for (size_t i = 0; i < count; i++)
		add(program, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, numbers[i], (uint8_t)(count - i), 0));
	answer(program, SECCOMP_RET_ALLOW);
	answer(program, SECCOMP_RET_ERRNO | EPERM);
	program->code[start + 1].jf = (uint8_t)(program->length - start - 2);
}

static bool install(struct program *program)
{
	struct sock_fprog wanted = {.filter = program->code};

	/* The architecture of none of our lists: 32-bit ARM, say. */
	answer(program, SECCOMP_RET_KILL_PROCESS);
	wanted.len = (unsigned short)program->length;
	/* Else older kernels make programs with a filter slower, against attacks from which it does not protect. */
	if (syscall(__NR_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_SPEC_ALLOW, &wanted) == 0)
		return true;
	return errno == EINVAL && syscall(__NR_seccomp, SECCOMP_SET_MODE_FILTER, 0, &wanted) == 0;
}

bool filter_calls(void)
{
	struct program program = {.length = 0};

	add_calls(&program, NATIVE, refused, REFUSED);
#ifdef __x86_64__
	add_calls(&program, AUDIT_ARCH_I386, filter_ia32_refused, filter_ia32_count);
#endif
	return install(&program);
}

bool filter_bpf(void)
{
	struct program program = {.length = 0};

	add_calls(&program, NATIVE, &bpf, 1);
#ifdef __x86_64__
	add_calls(&program, AUDIT_ARCH_I386, &filter_ia32_bpf, 1);
#endif
	return install(&program);
}
