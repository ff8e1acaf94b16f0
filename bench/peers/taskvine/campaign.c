/* A TaskVine manager for bench/peers/data.py and bench/data/broadcast.py: submits
 * tasks that each read one file, waits for all, and prints seconds and bytes as JSON.
 *
 *   campaign url|file|nopeers WORKERS PORT_FILE TASKS_FILE
 *
 * PORT_FILE is made when workers can connect. TASKS_FILE has a line per task:
 * the URL or the path of what it reads, and maybe, after a space, the feature of
 * the worker that it is for. "nopeers" is "file" without transfers between
 * workers. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include "taskvine.h"

enum { FILES_MAX = 4096, LINE_MAX_BYTES = 4096 };

static double now(void) {
	struct timeval time;
	gettimeofday(&time, NULL);
	return time.tv_sec + time.tv_usec / 1e6;
}

static void die(const char *what) {
	perror(what);
	exit(1);
}

/* One declaration for each name, however many tasks read it. */
static struct vine_file *declare(struct vine_manager *manager, const char *name, int is_url) {
	static char *names[FILES_MAX];
	static struct vine_file *files[FILES_MAX];
	int at = 0;
	while (at < FILES_MAX && names[at] && strcmp(names[at], name)) at++;
	if (at == FILES_MAX) die("too many files");
	if (!names[at]) {
		names[at] = strdup(name);
		files[at] = is_url ? vine_declare_url(manager, name, VINE_CACHE_LEVEL_WORKFLOW, 0)
				   : vine_declare_file(manager, name, VINE_CACHE_LEVEL_WORKFLOW, 0);
	}
	return files[at];
}

int main(int argc, char **argv) {
	if (argc != 5) die("campaign url|file|nopeers WORKERS PORT_FILE TASKS_FILE");
	int is_url = !strcmp(argv[1], "url"), workers = atoi(argv[2]);
	struct vine_manager *manager = vine_create(0);
	if (!manager) die("vine_create");
	if (!strcmp(argv[1], "nopeers")) vine_disable_peer_transfers(manager);
	FILE *port = fopen(argv[3], "w");
	if (!port || fprintf(port, "%d\n", vine_port(manager)) < 0 || fclose(port)) die(argv[3]);
	struct vine_stats stats;
	do {
		vine_wait(manager, 1);
		vine_get_stats(manager, &stats);
	} while (stats.workers_connected < workers);

	FILE *tasks = fopen(argv[4], "r");
	if (!tasks) die(argv[4]);
	char line[LINE_MAX_BYTES];
	int submitted = 0, failed = 0;
	double begun = now();
	while (fgets(line, sizeof line, tasks)) {
		line[strcspn(line, "\n")] = 0;
		char *feature = strchr(line, ' ');
		if (feature) *feature++ = 0;
		struct vine_task *task = vine_task_create("/bin/true");
		vine_task_add_input(task, declare(manager, line, is_url), "in", 0);
		vine_task_set_cores(task, 1);
		if (feature) vine_task_add_feature(task, feature);
		vine_submit(manager, task);
		submitted++;
	}
	while (!vine_empty(manager)) {
		struct vine_task *task = vine_wait(manager, 5);
		if (!task) continue;
		failed += vine_task_get_exit_code(task) != 0;
		vine_task_delete(task);
	}
	double seconds = now() - begun;
	vine_get_stats(manager, &stats);
	printf("{\"seconds\": %.6f, \"tasks\": %d, \"failed\": %d, \"manager_bytes\": %lld}\n", seconds, submitted,
		failed, (long long)stats.bytes_sent);
	vine_delete(manager);
	return failed != 0;
}
