/*
 * Moves the calling thread, and with it everything that it starts, into a shared root file system.
 *
 *     outside: the node's own root                 inside: what a job sees
 *     /mnt/jail           the shared root    ──►   /
 *     /mnt/jail/home      a mount below it   ──►   /home
 *     /proc                                        a new one, of the same process namespace
 *     /dev, /sys          with their mounts  ──►   /dev, /sys
 *     each `bind=`        for example /run/slurm ► the same path
 *
 * From then on, system calls that nobody inside needs are refused (filter.h).
 *
 * Nothing here knows of Slurm, allocates memory, or writes to the shared root except to make a place that is
 * missing for one of these mounts. It is all or nothing: after a failure the thread is outside, as before.
 */
#ifndef ISTHMUS_JAIL_H
#define ISTHMUS_JAIL_H

#include <stdbool.h>
#include <stddef.h>

enum {
	JAIL_MAX_BINDS = 32,
	/* A drained node shows it in one line. */
	JAIL_REASON_SIZE = 256,
};

/* A file of root's below the shared root. It is there when, and only when, the root is completely filled. */
#define JAIL_READY ".isthmus/ready"

struct jail {
	const char *root;
	const char *binds[JAIL_MAX_BINDS];
	size_t bind_count;
};

/* What went wrong, as a sentence for an administrator. */
struct failure {
	char reason[JAIL_REASON_SIZE];
};

/* Read `root=PATH` and any number of `bind=PATH`. The strings are used, not copied. */
bool jail_parse(int count, char *const *words, struct jail *jail, struct failure *failure);

/* Say whether the shared root is there, complete, and root's alone to change. */
bool jail_check(const struct jail *jail, struct failure *failure);

/* Check, then enter. */
bool jail_enter(const struct jail *jail, struct failure *failure);

#endif
