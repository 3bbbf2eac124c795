/*
 * The allocation of an external job, with its nodes in the answer if it started at once:
 *
 *     {"name":"web","min_nodes":1,"cpus_per_task":2}    ─►    {"errors":[],"job_id":7,"nodes":"n1"}
 *
 * slurmrestd makes the same call, but answers only when the job has started, and with its id alone. A request is one
 * flat object of JSON, whose fields are those of job_desc_msg_t in slurm.h under their names there; none may be used
 * that is not listed here.
 */
#include "complete.h"

#include <slurm/slurm.h>
#include <slurm/slurm_errno.h>

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if SLURM_VERSION_NUMBER < SLURM_VERSION_NUM(25, 11, 0)

void allocate(int peer, char *body)
{
	(void)body;
	answer(peer, 501, ESLURM_NOT_SUPPORTED, "external jobs came with Slurm 25.11");
}

#else

#define OK "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
#define GIVEN "{\"errors\":[],\"job_id\":%u,\"nodes\":\"%s\"}"

enum kind { TEXT, NUMBER_16, NUMBER_32, NUMBER_64 };

struct field {
	const char *name;
	size_t offset;
	enum kind kind;
};

#define MEMBER(name) (((const job_desc_msg_t *)0)->name)
#define KIND(name)                                                                                                     \
	_Generic(MEMBER(name), char * : TEXT, uint16_t : NUMBER_16, uint32_t : NUMBER_32, uint64_t : NUMBER_64)
#define FIELD(name)                                                                                                    \
	{                                                                                                              \
		#name, offsetof(job_desc_msg_t, name), KIND(name)                                                      \
	}

static const struct field FIELDS[] = {
	FIELD(account), FIELD(admin_comment), FIELD(comment), FIELD(cpus_per_task), FIELD(exc_nodes),
	FIELD(features), FIELD(licenses), FIELD(max_nodes), FIELD(mcs_label), FIELD(min_nodes), FIELD(name),
	FIELD(nice), FIELD(ntasks_per_node), FIELD(num_tasks), FIELD(partition), FIELD(pn_min_memory),
	FIELD(priority), FIELD(qos), FIELD(requeue), FIELD(reservation), FIELD(shared), FIELD(time_limit),
	FIELD(tres_per_node), FIELD(tres_per_task), FIELD(wckey), FIELD(work_dir),
};

static void __attribute__((noreturn)) refuse_json(int peer, const char *at)
{
	answer(peer, 400, 0, "the body is not one flat object of JSON, at: %.20s", at);
}

static char *take(int peer, char *at, char sign)
{
	if (*at != sign)
		refuse_json(peer, at);
	return at + 1;
}

/* Takes a string, unescaped in place. What else has to be escaped are control characters, and Slurm gets none. */
static char *take_text(int peer, char **at)
{
	char *text = take(peer, *at, '"'), *end = text, *sign;

	for (sign = text; *sign && *sign != '"'; sign++) {
		if (*sign == '\\' && *++sign != '"' && *sign != '\\')
			refuse_json(peer, sign);
		*end++ = *sign;
	}
	*at = take(peer, sign, '"');
	*end = '\0';
	return text;
}

static uint64_t take_number(int peer, char **at, uint64_t largest)
{
	char *end;

	if (**at < '0' || **at > '9')
		refuse_json(peer, *at);
	errno = 0;
	uint64_t number = strtoull(*at, &end, 10);
	if (errno || number > largest)
		answer(peer, 400, 0, "a number is too large: %.20s", *at);
	*at = end;
	return number;
}

static const struct field *field_of(int peer, const char *name)
{
	for (size_t i = 0; i < sizeof(FIELDS) / sizeof(*FIELDS); i++)
		if (strcmp(FIELDS[i].name, name) == 0)
			return &FIELDS[i];
	answer(peer, 400, 0, "there is no field %.40s", name);
}

static void fill_in(int peer, char *at, job_desc_msg_t *job)
{
	for (char sign = '{'; sign == '{' || *at == ','; sign = ',') {
		at = take(peer, at, sign);
		const struct field *field = field_of(peer, take_text(peer, &at));
		void *member = (char *)job + field->offset;
		at = take(peer, at, ':');
		switch (field->kind) {
		case TEXT:
			*(char **)member = take_text(peer, &at);
			break;
		case NUMBER_16:
			*(uint16_t *)member = (uint16_t)take_number(peer, &at, UINT16_MAX);
			break;
		case NUMBER_32:
			*(uint32_t *)member = (uint32_t)take_number(peer, &at, UINT32_MAX);
			break;
		case NUMBER_64:
			*(uint64_t *)member = take_number(peer, &at, UINT64_MAX);
			break;
		}
	}
	if (strcmp(at, "}") != 0)
		refuse_json(peer, at);
}

void allocate(int peer, char *body)
{
	resource_allocation_response_msg_t *given = NULL;
	job_desc_msg_t job;

	slurm_init_job_desc_msg(&job);
	fill_in(peer, body, &job);
	job.bitflags |= EXTERNAL_JOB;
	if (slurm_allocate_resources(&job, &given) != SLURM_SUCCESS)
		refuse(peer, 0, errno);
	uint32_t job_id = given->step_id.job_id;
	const char *nodes = given->node_list ? given->node_list : "";
	fprintf(stderr, "200 job %u was given %s\n", job_id, nodes);
	dprintf(peer, OK GIVEN, snprintf(NULL, 0, GIVEN, job_id, nodes), job_id, nodes);
	slurm_free_resource_allocation_response_msg(given);
}

#endif
