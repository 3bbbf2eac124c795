/*
 * isthmus-enter: a program inside the shared root, by the same code that lets jobs in.
 *
 *     isthmus-enter root=/mnt/jail bind=/run/slurm -- PROGRAM [ARGUMENT...]
 *     isthmus-enter root=/mnt/jail
 *
 * Without a program it only says whether the root is fit to be entered, as a health check wants to know. What goes
 * wrong is told on standard error, and ends with code 125, as `chroot` does; a program that cannot be run with 127.
 */
#define _GNU_SOURCE
#include "filter.h"
#include "jail.h"

#include <err.h>
#include <string.h>
#include <unistd.h>

enum { NOT_ENTERED = 125, NOT_RUN = 127 };

static int options_before(int count, char *const *words)
{
	for (int i = 0; i < count; i++)
		if (strcmp(words[i], "--") == 0)
			return i;
	return count;
}

int main(int count, char **words)
{
	struct jail jail;
	struct failure failure;
	int options = options_before(count - 1, words + 1);
	char **program = options + 2 < count ? words + options + 2 : NULL;

	if (!jail_parse(options, words + 1, &jail, &failure))
		errx(NOT_ENTERED, "%s", failure.reason);
	if (!program) {
		if (!jail_check(&jail, &failure))
			errx(NOT_ENTERED, "%s", failure.reason);
		return 0;
	}
	if (!jail_enter(&jail, &failure))
		errx(NOT_ENTERED, "%s", failure.reason);
	if (!filter_bpf())
		err(NOT_ENTERED, "system calls cannot be filtered on this node");
	execvp(program[0], program);
	err(NOT_RUN, "%s", program[0]);
}
