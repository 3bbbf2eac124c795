#define _GNU_SOURCE
#include "jail.h"
#include "filter.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { PROC_FD_SIZE = sizeof("/proc/self/fd/") + 3 * sizeof(int) };

/* Part of every node, whatever is configured: devices of a job, and the control groups below /sys. */
static const char *const always[] = {"/dev", "/sys"};
enum { ALWAYS = sizeof(always) / sizeof(always[0]), MAX_SOURCES = ALWAYS + JAIL_MAX_BINDS };

/* What of the old root is to be seen inside: an open descriptor for each, which stays valid while roots change. */
struct source {
	const char *path;
	int fd;
	bool is_directory;
};

__attribute__((format(printf, 2, 3))) static bool fail(struct failure *failure, const char *format, ...)
{
	va_list values;

	va_start(values, format);
	/* A reason that is too long is cut; it is for people. */
	(void)vsnprintf(failure->reason, sizeof(failure->reason), format, values);
	va_end(values);
	return false;
}

/* --- settings ------------------------------------------------------------------------------------------------- */

/* Absolute, not the root itself, and without `.`, `..` or empty components: what is written is what is mounted. */
static bool is_plain_path(const char *path)
{
	if (strlen(path) >= PATH_MAX)
		return false;
	do {
		size_t length;

		if (*path != '/')
			return false;
		path++;
		length = strcspn(path, "/");
		if (length == 0 || (length == 1 && path[0] == '.') || (length == 2 && path[0] == '.' && path[1] == '.'))
			return false;
		path += length;
	} while (*path);
	return true;
}

static const char *value_of(const char *word, const char *name)
{
	size_t length = strlen(name);

	return strncmp(word, name, length) == 0 ? word + length : NULL;
}

bool jail_parse(int count, char *const *words, struct jail *jail, struct failure *failure)
{
	*jail = (struct jail){0};
	for (int i = 0; i < count; i++) {
		const char *root = value_of(words[i], "root=");
		const char *bind = value_of(words[i], "bind=");
		const char *path = root ? root : bind;

		if (!path)
			return fail(failure, "plugstack.conf: %s is no option of isthmus_jail.so, only root= and bind=",
				    words[i]);
		if (!is_plain_path(path))
			return fail(failure, "plugstack.conf: %s is no absolute path without . and ..", words[i]);
		if (root) {
			if (jail->root)
				return fail(failure, "plugstack.conf: isthmus_jail.so has two roots, %s and %s", jail->root, root);
			jail->root = root;
		} else {
			if (jail->bind_count == JAIL_MAX_BINDS)
				return fail(failure, "plugstack.conf: isthmus_jail.so takes %d times bind= at most",
					    JAIL_MAX_BINDS);
			jail->binds[jail->bind_count++] = bind;
		}
	}
	if (!jail->root)
		return fail(failure, "plugstack.conf: isthmus_jail.so needs root=, the directory of the shared root");
	return true;
}

/* --- the shared root ------------------------------------------------------------------------------------------ */

static bool is_roots_alone(const struct stat *status)
{
	return status->st_uid == 0 && !(status->st_mode & (S_IWGRP | S_IWOTH));
}

static bool look_at(const struct jail *jail, struct stat *root, struct failure *failure)
{
	struct stat ready;
	int fd = open(jail->root, O_PATH | O_DIRECTORY | O_CLOEXEC);
	bool good = false;

	if (fd < 0) {
		if (errno == ENOENT)
			return fail(failure, "shared root %s is missing on this node", jail->root);
		if (errno == ESTALE)
			return fail(failure, "shared root %s is stale: its volume must be mounted again", jail->root);
		return fail(failure, "shared root %s cannot be opened: %m", jail->root);
	}
	if (fstat(fd, root) < 0)
		fail(failure, "shared root %s cannot be read: %m", jail->root);
	else if (!is_roots_alone(root))
		fail(failure, "shared root %s is not root's alone: it needs owner root and mode 755", jail->root);
	else if (fstatat(fd, JAIL_READY, &ready, AT_SYMLINK_NOFOLLOW) < 0) {
		if (errno == ENOENT || errno == ENOTDIR)
			fail(failure, "shared root %s is not filled, or not mounted: it has no %s", jail->root, JAIL_READY);
		else
			fail(failure, "shared root %s cannot be read at %s: %m", jail->root, JAIL_READY);
	} else if (!S_ISREG(ready.st_mode) || !is_roots_alone(&ready))
		fail(failure, "shared root %s: %s is not a file of root's alone", jail->root, JAIL_READY);
	else
		good = true;
	close(fd);
	return good;
}

bool jail_check(const struct jail *jail, struct failure *failure)
{
	struct stat root;

	return look_at(jail, &root, failure);
}

/* --- entering ------------------------------------------------------------------------------------------------- */

static void close_all(struct source *sources, size_t count)
{
	for (size_t i = 0; i < count; i++)
		close(sources[i].fd);
}

static bool open_source(const char *path, struct source *source, struct failure *failure)
{
	struct stat status;
	int fd = open(path, O_PATH | O_CLOEXEC);

	if (fd < 0)
		return fail(failure, "%s, which jobs are to see, cannot be opened on this node: %m", path);
	if (fstat(fd, &status) < 0) {
		fail(failure, "%s cannot be read on this node: %m", path);
		close(fd);
		return false;
	}
	*source = (struct source){.path = path, .fd = fd, .is_directory = S_ISDIR(status.st_mode)};
	return true;
}

static bool open_sources(const struct jail *jail, struct source *sources, size_t *count, struct failure *failure)
{
	for (*count = 0; *count < ALWAYS + jail->bind_count; ++*count) {
		const char *path = *count < ALWAYS ? always[*count] : jail->binds[*count - ALWAYS];

		if (!open_source(path, &sources[*count], failure)) {
			close_all(sources, *count);
			return false;
		}
	}
	return true;
}

/* Several nodes may make a place at once, so one that is there by now is just as good. */
static bool make_directory(const char *path, struct failure *failure)
{
	if (mkdir(path, 0755) == 0 || errno == EEXIST)
		return true;
	return fail(failure, "shared root: directory %s is missing and cannot be made: %m", path);
}

static bool make_file(const char *path, struct failure *failure)
{
	int fd = open(path, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0644);

	if (fd < 0 && errno != EEXIST)
		return fail(failure, "shared root: file %s is missing and cannot be made: %m", path);
	if (fd >= 0)
		close(fd);
	return true;
}

static bool make_place(const char *path, bool is_directory, struct failure *failure)
{
	char part[PATH_MAX] = "/";
	struct stat status;

	if (stat(path, &status) == 0) {
		if (S_ISDIR(status.st_mode) == is_directory)
			return true;
		return fail(failure, "shared root: %s is %s directory, but %s on the node", path, is_directory ? "no" : "a",
			    is_directory ? "one" : "none");
	}
	for (size_t i = 1; path[i]; i++) {
		if (i + 1 >= sizeof(part))
			return fail(failure, "%s is too long a path", path);
		if (path[i] == '/' && !make_directory(part, failure))
			return false;
		part[i] = path[i];
	}
	return is_directory ? make_directory(path, failure) : make_file(path, failure);
}

/* Called with the shared root as root, so that no symbolic link in a path can lead out of it. */
static bool mount_source(const struct source *source, struct failure *failure)
{
	char name[PROC_FD_SIZE];
	int length = snprintf(name, sizeof(name), "/proc/self/fd/%d", source->fd);

	if (length < 0 || (size_t)length >= sizeof(name))
		return fail(failure, "the name of descriptor %d is too long", source->fd);
	if (!make_place(source->path, source->is_directory, failure))
		return false;
	if (mount(name, source->path, NULL, MS_BIND | MS_REC, NULL) < 0)
		return fail(failure, "shared root: %s cannot be mounted: %m", source->path);
	return true;
}

static bool mount_all(const struct source *sources, size_t count, struct failure *failure)
{
	if (!make_place("/proc", true, failure))
		return false;
	if (mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) < 0)
		return fail(failure, "shared root: /proc cannot be mounted: %m");
	for (size_t i = 0; i < count; i++)
		if (!mount_source(&sources[i], failure))
			return false;
	return true;
}

/* Make the shared root this thread's root. The old one is then mounted upon it, as man 2 pivot_root describes. */
static bool turn(const char *root, struct failure *failure)
{
	/* pivot_root wants a mount of its own; and mounts below come along. */
	if (mount(root, root, NULL, MS_BIND | MS_REC, NULL) < 0)
		return fail(failure, "shared root %s cannot be bound: %m", root);
	if (chdir(root) < 0)
		return fail(failure, "shared root %s cannot be entered: %m", root);
	if (syscall(SYS_pivot_root, ".", ".") < 0)
		return fail(failure, "shared root %s cannot become the root: %m", root);
	return true;
}

/* Everything that is done in the new mount namespace. */
static bool settle(const struct jail *jail, const struct stat *expected, struct failure *failure)
{
	struct source sources[MAX_SOURCES];
	struct stat now;
	size_t count;
	bool good;

	/* What the node mounts later is seen inside; nothing that happens inside is seen on the node. */
	if (mount(NULL, "/", NULL, MS_REC | MS_SLAVE, NULL) < 0)
		return fail(failure, "mounts cannot be cut off from the node's: %m");
	/* Not before: a descriptor from another mount namespace could not be mounted. */
	if (!open_sources(jail, sources, &count, failure))
		return false;
	good = turn(jail->root, failure) && mount_all(sources, count, failure);
	close_all(sources, count);
	if (!good)
		return false;
	if (umount2(".", MNT_DETACH) < 0)
		return fail(failure, "the node's own root cannot be taken away: %m");
	if (chdir("/") < 0 || stat(".", &now) < 0)
		return fail(failure, "shared root %s cannot be read: %m", jail->root);
	if (now.st_dev != expected->st_dev || now.st_ino != expected->st_ino)
		return fail(failure, "shared root %s was exchanged while a job entered it", jail->root);
	/* Last: nothing that follows can fail, and so nobody is outside with a filter. */
	if (!filter_calls())
		return fail(failure, "system calls cannot be filtered on this node: %m");
	return true;
}

bool jail_enter(const struct jail *jail, struct failure *failure)
{
	struct stat root;
	int outside;
	bool good;

	if (!look_at(jail, &root, failure))
		return false;
	outside = open("/proc/thread-self/ns/mnt", O_RDONLY | O_CLOEXEC);
	if (outside < 0)
		return fail(failure, "the node's mount namespace cannot be opened: %m");
	if (unshare(CLONE_NEWNS) < 0) {
		fail(failure, "there is no new mount namespace to be had: %m");
		close(outside);
		return false;
	}
	good = settle(jail, &root, failure);
	/* Back outside, where there is a node to be drained and a socket to be removed. If not even that works, the
	   first reason is still the one to tell. */
	if (!good)
		(void)!setns(outside, CLONE_NEWNS);
	close(outside);
	return good;
}
