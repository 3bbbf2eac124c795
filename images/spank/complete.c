/*
 * isthmus-complete: makes the calls to slurmctld that the bridge needs and slurmrestd lacks.
 *
 *     isthmus-complete ADDRESS PORT
 *
 *     POST /jobs/7/complete?cluster=CLUSTER&status=256 HTTP/1.1
 *     X-SLURM-USER-TOKEN: TOKEN
 *
 *     POST /jobs/allocate HTTP/1.1          {"name":"web","min_nodes":1,…} (allocate.c)
 *
 * slurmrestd can cancel a job and no more; that a job COMPLETED or FAILED is told to slurmctld by a call of libslurm.
 * And it cannot tell which nodes a job got when it was submitted. This program makes these calls with the token that
 * came with the request, as slurmrestd does: it has no key and no rights of its own, and slurmctld decides who may do
 * what. It ends only running jobs whose marker names the cluster.
 *
 *     accept ─► fork ─► read a request ─┬─► load the job ─► check its marker ─► complete it ─┬─► answer
 *                            ▲          └─► fill in a job ─► allocate it ────────────────────┘      │
 *                            └──────────────────────────────────────────────────────────────────────┘
 *
 * Each connection has a process of its own, so that tokens are forgotten with it, and a call that hangs or libslurm's
 * habit of ending the process on errors harm no other. The status is one of wait(2): 256 is exit code 1, 9 is
 * signal 9.
 */
#define _GNU_SOURCE
#include "complete.h"

#include <slurm/slurm.h>
#include <slurm/slurm_errno.h>

#include <err.h>
#include <errno.h>
#include <netdb.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
	MAX_REQUEST = 65536,
	MAX_CHILDREN = 32,
	READ_WITHIN_S = 5,
	/* Longer than the bridge lets a connection rest before it uses it again. */
	REST_WITHIN_S = 330,
	/* libslurm waits 10 s for an answer (MessageTimeout), and it is asked twice. */
	ANSWER_WITHIN_S = 30,
};

#define BEGINNING "POST /jobs/"
#define ALLOCATE "POST /jobs/allocate HTTP/1.1"
#define TOKEN_HEADER "x-slurm-user-token:"
#define LENGTH_HEADER "content-length:"
#define TOKEN_SIGNS "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_."

struct request {
	uint32_t job_id; /* 0 for an allocation */
	uint32_t status;
	char cluster[64];
	char *token;
	char *body;
};

static int listener;
static volatile sig_atomic_t stopped;

static void stop(int signal_number)
{
	(void)signal_number;
	stopped = 1;
	/* Wakes accept, also if it is called only after this. */
	shutdown(listener, SHUT_RD);
}

void answer(int peer, int code, int error, const char *format, ...)
{
	char text[512], body[640];
	va_list values;

	va_start(values, format);
	vsnprintf(text, sizeof(text), format, values);
	va_end(values);
	for (char *sign = text; *sign; sign++)
		if (*sign < ' ' || *sign == '"' || *sign == '\\')
			*sign = ' ';
	fprintf(stderr, "%d %s\n", code, text);
	int length = snprintf(body, sizeof(body), "{\"errors\":[{\"error_number\":%d,\"error\":\"%s\"}]}", error, text);
	dprintf(peer,
		"HTTP/1.1 %d Failed\r\nContent-Type: application/json\r\nContent-Length: %d\r\n"
		"Connection: close\r\n\r\n%s",
		code, length, body);
	/* What is still unread would turn the end of the connection into a reset, and the answer could be lost. */
	shutdown(peer, SHUT_WR);
	alarm(READ_WITHIN_S);
	while (read(peer, body, sizeof(body)) > 0)
		;
	_exit(0);
}

/* Returns what stands behind a header. */
static char *find_header(char *headers, const char *name)
{
	for (char *line = headers; line; line = strstr(line, "\r\n")) {
		line += strspn(line, "\r\n");
		if (strncasecmp(line, name, strlen(name)) == 0)
			return line + strlen(name) + strspn(line + strlen(name), " \t");
	}
	return NULL;
}

/* Returns where the first line ends. The headers end with an empty line, behind which the body stands. */
static char *read_request(int peer, char *text, size_t size, char **body)
{
	size_t used = 0;

	while (used + 1 < size) {
		ssize_t got = read(peer, text + used, size - 1 - used);
		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			_exit(0);
		used += (size_t)got;
		text[used] = '\0';
		if (strlen(text) != used)
			answer(peer, 400, 0, "the request contains a zero byte");
		char *end = strstr(text, "\r\n\r\n");
		if (!end)
			continue;
		*body = end + strlen("\r\n\r\n");
		end[2] = '\0';
		const char *length = find_header(text, LENGTH_HEADER);
		size_t expected = length ? strtoul(length, NULL, 10) : 0, there = strlen(*body);
		if (there > expected)
			answer(peer, 400, 0, "there is something after the request");
		if (there == expected)
			return strstr(text, "\r\n");
		end[2] = '\r';
	}
	answer(peer, 431, 0, "the request is larger than %zu bytes", size);
}

static bool is_number(const char *text, uint32_t largest, uint32_t *number)
{
	char *end;
	unsigned long value = strtoul(text, &end, 10);

	*number = (uint32_t)value;
	return *end == '\0' && value <= largest;
}

static bool is_wait_status(uint32_t status)
{
	uint32_t code = status >> 8, signal_number = status & 0xff;

	return (signal_number == 0 && code <= 255) || (code == 0 && signal_number <= 64);
}

static char *find_token(char *headers)
{
	char *token = find_header(headers, TOKEN_HEADER);
	size_t length = token ? strspn(token, TOKEN_SIGNS) : 0;

	if (length == 0 || token[length + strspn(token + length, " \t")] != '\r')
		return NULL;
	token[length] = '\0';
	return token;
}

static void parse_completion(int peer, const char *line, struct request *request)
{
	char job[11], status[6];
	int end = 0;

	/* A space would stand for any number of them. */
	if (strncmp(line, BEGINNING, strlen(BEGINNING)) == 0)
		sscanf(line, BEGINNING "%10[0-9]/complete?cluster=%63[0-9A-Za-z.-]&status=%5[0-9]%n", job,
		       request->cluster, status, &end);
	if (end == 0 || strcmp(line + end, " HTTP/1.1") != 0)
		answer(peer, 404, 0, "the only calls are POST /jobs/allocate and "
				     "POST /jobs/JOB/complete?cluster=CLUSTER&status=STATUS");
	if (!is_number(job, MAX_FED_JOB_ID, &request->job_id) || request->job_id == 0)
		answer(peer, 400, 0, "%s is not a job id", job);
	if (!is_number(status, 0xffff, &request->status) || !is_wait_status(request->status))
		answer(peer, 400, 0, "%s is not a wait status; use CODE * 256 or SIGNAL", status);
	if (*request->body)
		answer(peer, 400, 0, "there is something after the request");
}

static void parse(int peer, char *text, struct request *request)
{
	char *headers = read_request(peer, text, MAX_REQUEST, &request->body);

	if (!headers)
		_exit(0);
	*headers = '\0';
	if (strcmp(text, ALLOCATE) != 0)
		parse_completion(peer, text, request);
	request->token = find_token(headers + 1);
	if (!request->token)
		answer(peer, 401, 0, "there is no usable X-SLURM-USER-TOKEN");
}

void refuse(int peer, uint32_t job_id, int error)
{
	bool unknown = error == SLURM_PROTOCOL_AUTHENTICATION_ERROR || error == ESLURM_AUTH_CRED_INVALID;

	char job[32] = "";

	if (job_id)
		snprintf(job, sizeof(job), "job %u: ", job_id);
	answer(peer, unknown ? 401 : 500, error, "%s%s", job, slurm_strerror(error));
}

/* Where 24.11 takes a job id, 26.05 takes a step id that names the job alone. The compiler tells by the prototype. */
static slurm_step_id_t whole(uint32_t job_id)
{
	return (slurm_step_id_t){.job_id = job_id, .step_het_comp = NO_VAL, .step_id = NO_VAL};
}

static int load(uint32_t job_id, job_info_msg_t **found)
{
	slurm_step_id_t job = whole(job_id);

	return slurm_load_job(found,
			      _Generic(&slurm_load_job, int (*)(job_info_msg_t **, uint32_t, uint16_t) : job_id,
				       default : job),
			      SHOW_ALL);
}

static int complete(uint32_t job_id, uint32_t status)
{
	slurm_step_id_t job = whole(job_id);

	return slurm_complete_job(
		_Generic(&slurm_complete_job, int (*)(uint32_t, uint32_t) : job_id, default : &job), status);
}

/* The bridge writes the marker as JSON without spaces, and the cluster comes first. Nobody but SlurmUser, root and
 * operators can write an admin comment; what others put into the rest of it cannot have unescaped quotes. */
static bool is_marked(const char *admin_comment, const char *cluster)
{
	char beginning[96];

	snprintf(beginning, sizeof(beginning), "{\"cluster\":\"%s\",", cluster);
	return admin_comment && strncmp(admin_comment, beginning, strlen(beginning)) == 0 &&
	       strstr(admin_comment, ",\"isthmus\":1");
}

static void check(int peer, const struct request *request)
{
	job_info_msg_t *found = NULL;

	if (load(request->job_id, &found) != SLURM_SUCCESS)
		refuse(peer, request->job_id, errno);
	if (found->record_count == 0)
		refuse(peer, request->job_id, ESLURM_INVALID_JOB_ID);
	/* Of a heterogeneous job, all components are there. */
	for (uint32_t i = 0; i < found->record_count; i++) {
		const slurm_job_info_t *job = &found->job_array[i];
		uint32_t state = job->job_state & JOB_STATE_BASE;
		if (!is_marked(job->admin_comment, request->cluster))
			answer(peer, 404, ESLURM_INVALID_JOB_ID, "job %u is not a job of cluster %s", request->job_id,
			       request->cluster);
		if (state == JOB_PENDING)
			refuse(peer, request->job_id, ESLURM_JOB_PENDING);
		if (state > JOB_SUSPENDED)
			refuse(peer, request->job_id, ESLURM_ALREADY_DONE);
	}
	slurm_free_job_info_msg(found);
}

/* libslurm takes long to start, so it stays for the requests that follow. It knows one token only: whoever comes with
 * another is told to ask again on a connection of its own. */
static void start_with(int peer, const char *token)
{
	static char current[MAX_REQUEST];

	if (strcmp(token, current) == 0)
		return;
	if (*current)
		answer(peer, 421, 0, "this connection is for another token");
	strcpy(current, token);
	if (setenv("SLURM_JWT", current, 1) != 0)
		answer(peer, 500, 0, "out of memory");
	slurm_init(NULL);
}

static void __attribute__((noreturn)) serve(int peer)
{
	static char text[MAX_REQUEST];
	sigset_t term;

	sigemptyset(&term);
	sigaddset(&term, SIGTERM);
	signal(SIGTERM, SIG_DFL);
	for (unsigned patience = READ_WITHIN_S;; patience = REST_WITHIN_S) {
		struct request request = {0};

		/* Who is to end while it works does so after its answer. */
		sigprocmask(SIG_UNBLOCK, &term, NULL);
		alarm(patience);
		parse(peer, text, &request);
		sigprocmask(SIG_BLOCK, &term, NULL);
		alarm(ANSWER_WITHIN_S);
		start_with(peer, request.token);
		if (request.job_id == 0) {
			allocate(peer, request.body);
			continue;
		}
		check(peer, &request);
		if (complete(request.job_id, request.status) != SLURM_SUCCESS)
			refuse(peer, request.job_id, errno);
		fprintf(stderr, "200 job %u of cluster %s ended with wait status %u\n", request.job_id, request.cluster,
			request.status);
		dprintf(peer, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 13\r\n\r\n"
			      "{\"errors\":[]}");
	}
}

static void listen_at(const char *address, const char *port)
{
	const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV};
	struct addrinfo *found;
	int error = getaddrinfo(address, port, &hints, &found);

	if (error)
		errx(2, "%s %s: %s", address, port, gai_strerror(error));
	listener = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (listener < 0 || setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int)) != 0 ||
	    bind(listener, found->ai_addr, found->ai_addrlen) != 0 || listen(listener, SOMAXCONN) != 0)
		err(1, "cannot listen at %s, port %s", address, port);
	freeaddrinfo(found);
}

int main(int count, char **words)
{
	const struct sigaction on_term = {.sa_handler = stop};
	int children = 0;

	if (count != 3)
		errx(2, "usage: isthmus-complete ADDRESS PORT");
	listen_at(words[1], words[2]);
	/* The first process of a container is ended by no signal that it does not handle. */
	sigaction(SIGTERM, &on_term, NULL);
	/* All connections are in one group, and nobody else is. */
	setpgid(0, 0);
	while (!stopped) {
		int peer = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
		while (children > 0 && waitpid(-1, NULL, children < MAX_CHILDREN ? WNOHANG : 0) > 0)
			children--;
		if (peer < 0)
			continue;
		pid_t child = fork();
		if (child == 0) {
			close(listener);
			serve(peer);
		}
		children += child > 0;
		close(peer);
	}
	close(listener);
	kill(0, SIGTERM);
	while (wait(NULL) > 0 || errno == EINTR)
		;
	return 0;
}
