/* What the calls of isthmus-complete have in common. */
#pragma once

#include <stdint.h>

/* Refuses as slurmrestd does, with Slurm's error number, and ends this process. The token is in no answer. */
void __attribute__((noreturn, format(printf, 4, 5))) answer(int peer, int code, int error, const char *format, ...);

/* Refuses with what slurmctld said of a job, which is 0 if it has none. */
void __attribute__((noreturn)) refuse(int peer, uint32_t job_id, int error);

/* Allocates an external job, and answers with its id and, if it started at once, its nodes. Changes the body. */
void allocate(int peer, char *body);
