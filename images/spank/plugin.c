/*
 * isthmus_jail.so: Slurm starts every step of a job inside the shared root.
 *
 *     required isthmus_jail.so root=/mnt/jail bind=/var/spool/slurmd bind=/run/slurm
 *
 *     slurmd ── slurmstepd ── slurm_spank_init_post_opt ── opens output files ── drops privileges ── the program
 *     outside                 here the thread moves inside, and stays there
 *
 * The filter for system calls comes with it, but for bpf(2), which slurmstepd needs; tasks get that part of it later.
 *
 * slurmstepd itself moves, not only the task: files that it opens in a user's name (`--output`), what it runs in
 * his name (`--task-epilog`) and his working directory are all paths of the shared root. Slurm's own prolog and
 * epilog are started by slurmd, and stay outside. So does the step that only holds a job's place (`extern`): it runs
 * nothing.
 *
 * If the root is not fit to be entered, the next job would fail just as this one. So the node is drained, with the
 * reason; Slurm then puts a batch job back into the queue.
 */
#include "filter.h"
#include "jail.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

/* Jobs are named by their numbers in every version of Slurm. */
#define SLURM_BACKWARD_COMPAT
#include <slurm/slurm.h>
#include <slurm/slurm_errno.h>
#include <slurm/spank.h>

/* Slurm finds these by their names; all the rest is our own affair. */
#pragma GCC visibility push(default)
SPANK_PLUGIN(isthmus_jail, 1)
int slurm_spank_init_post_opt(spank_t spank, int count, char **words);
int slurm_spank_task_init_privileged(spank_t spank, int count, char **words);
#pragma GCC visibility pop

/* Slurm 24.11 takes any positive number for success, SPANK's own errors included, and would run the job outside. */
enum { FAILED = -1 };

/* A node that is drained has a reason, and who gave it wants to find it again. */
static bool is_drained(char *node)
{
	node_info_msg_t *answer = NULL;
	bool drained;

	if (slurm_load_node_single(&answer, node, 0) != SLURM_SUCCESS)
		return false;
	drained = answer->record_count == 1 && (answer->node_array[0].node_state & NODE_STATE_DRAIN);
	slurm_free_node_info_msg(answer);
	return drained;
}

static void drain(char *node, struct failure *failure)
{
	update_node_msg_t update;

	if (is_drained(node))
		return;
	slurm_init_update_node_msg(&update);
	update.node_names = node;
	update.node_state = NODE_STATE_DRAIN;
	update.reason = failure->reason;
	if (slurm_update_node(&update) != SLURM_SUCCESS)
		slurm_error("isthmus_jail: node %s could not be drained: %m", node);
}

static int refuse(spank_t spank, struct failure *failure)
{
	/* slurmstepd sets it for itself; nothing of a user's environment is in this process's. */
	char *node = getenv("SLURMD_NODENAME");
	const struct timespec head_start = {.tv_nsec = 200 * 1000 * 1000};
	uint32_t job;

	slurm_error("isthmus_jail: %s", failure->reason);
	if (node)
		drain(node, failure);
	else
		slurm_error("isthmus_jail: this node does not know its name, so it is not drained");
	/* For who waits at a terminal. Output is not yet connected, so what we print would reach the log alone; this
	   goes by way of slurmctld, and has to be faster than the news that the step failed, with which srun ends. */
	if (spank_get_item(spank, S_JOB_ID, &job) == ESPANK_SUCCESS &&
	    slurm_notify_job(job, failure->reason) == SLURM_SUCCESS)
		(void)nanosleep(&head_start, NULL);
	return FAILED;
}

/* A script lies where slurmd put it, which is a path of the node's. */
static bool script_is_seen(spank_t spank, struct failure *failure)
{
	char **words;
	int count;

	if (spank_get_item(spank, S_JOB_ARGV, &count, &words) != ESPANK_SUCCESS || count < 1)
		return true;
	if (access(words[0], R_OK) == 0)
		return true;
	(void)snprintf(failure->reason, sizeof(failure->reason),
		       "plugstack.conf: isthmus_jail.so needs bind= for SlurmdSpoolDir, as %s is not in the shared root",
		       words[0]);
	return false;
}

int slurm_spank_init_post_opt(spank_t spank, int count, char **words)
{
	struct jail jail;
	struct failure failure;
	uint32_t step;

	if (spank_context() != S_CTX_REMOTE)
		return ESPANK_SUCCESS;
	if (spank_get_item(spank, S_JOB_STEPID, &step) != ESPANK_SUCCESS) {
		slurm_error("isthmus_jail: Slurm does not say which step this is");
		return FAILED;
	}
	if (step == SLURM_EXTERN_CONT)
		return ESPANK_SUCCESS;
	if (!jail_parse(count, words, &jail, &failure) || !jail_enter(&jail, &failure))
		return refuse(spank, &failure);
	if (step == SLURM_BATCH_SCRIPT && !script_is_seen(spank, &failure))
		return refuse(spank, &failure);
	return ESPANK_SUCCESS;
}

/* In the process that becomes a task, when slurmstepd has nothing more to say about its devices by bpf(2). */
int slurm_spank_task_init_privileged(spank_t spank, int count, char **words)
{
	(void)spank;
	(void)count;
	(void)words;
	if (filter_bpf())
		return ESPANK_SUCCESS;
	slurm_error("isthmus_jail: system calls cannot be filtered on this node: %m");
	return FAILED;
}
