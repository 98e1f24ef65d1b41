/* fake_agent.c - the agent that the local cloud starts in its test: locks its folder and keeps
 * a child that stands for the engine.
 *
 *     fake_agent serve --spec PATH    lock, engine (an earlier one is adopted), until SIGTERM
 *     fake_agent shy --spec PATH      ends at once without a lock
 */
#include "base/core/own.h"
#include "base/io/file.h"
#include "base/io/proc.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static int adopt_or_start(const char *path, struct proc *ret)
{
    CLEANUP(buf_fini) struct buf text = { 0 };
    struct proc_id id;
    if (file_read(path, 256, &text, NULL) == 0) {
        struct str rest = buf_view(&text);
        if (proc_id_parse(str_cut(&rest, '\n'), &id) == 0 && proc_is_alive(&id))
            return proc_adopt(&id, ret, NULL);
    }
    const char *const argv[] = { "sleep", "600", NULL };
    struct proc_spec spec = { .argv = argv, .detached = true };
    int rc = proc_spawn(&spec, ret, NULL);
    if (rc < 0) return rc;
    char who[PROC_ID_TEXT_MAX], line[PROC_ID_TEXT_MAX + 16];
    proc_id_print(&ret->id, who);
    int n = snprintf(line, sizeof line, "%s\nport 1\n", who);
    return file_write_atomic(path, str_of(line, (size_t)n), 0600, NULL);
}

int main(int argc, char **argv)
{
    if (argc != 4 || strcmp(argv[1], "serve") != 0) return 1;
    char path[4096];
    size_t folder = strlen(argv[3]) - strlen("spec.json");
    sigset_t term;
    sigemptyset(&term);
    sigaddset(&term, SIGTERM);
    sigprocmask(SIG_BLOCK, &term, NULL);

    int fd;
    snprintf(path, sizeof path, "%.*sagent.lock", (int)folder, argv[3]);
    if (file_lock(path, &fd, NULL) < 0) return 2;
    struct proc engine;
    snprintf(path, sizeof path, "%.*sengine.id", (int)folder, argv[3]);
    if (adopt_or_start(path, &engine) < 0) return 3;
    int got;
    sigwait(&term, &got);
    proc_signal(&engine.id, SIGKILL, NULL);
    struct proc_exit how;
    proc_wait(&engine, 5000000, &how);
    file_unlock(fd);
    return 0;
}
