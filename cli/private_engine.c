/* private_engine.c - starts `muster engine` on a free port of 127.0.0.1 and waits until its model is loaded. */
#include "cli/private_engine.h"

#include "base/core/own.h"
#include "base/io/http/http_fetch.h"
#include "base/io/loop/clock.h"
#include "cli/daemons.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define POLL_US 50000
#define CALL_US 2000000
#define STOP_US 3000000

static int spawn(struct str model, const struct config_texts *flags, struct private_engine *e,
                 struct err *err)
{
    char self[PATH_MAX], listen[32];
    const char *argv[8 + PRIVATE_ENGINE_FLAGS_MAX + 1] = { self,          "engine",   "--model",
                                                           model.data,    "--listen", listen,
                                                           "--log-level", "warn" };
    size_t count = 8; /* NULL ends it */
    for (size_t i = 0; i < flags->count; i++)
        argv[count++] = flags->items[i].data;
    int rc = proc_self_path(self, sizeof self);
    if (rc < 0) return err_set(err, rc, "the path of this program is not known");
    e->port = daemons_free_port();
    if (e->port == 0) return err_set(err, -EADDRNOTAVAIL, "no port of 127.0.0.1 is free");
    snprintf(listen, sizeof listen, "127.0.0.1:%u", e->port);
    snprintf(e->log, sizeof e->log, "/tmp/muster-engine-XXXXXX");
    int fd = mkstemp(e->log);
    if (fd < 0) {
        rc = -errno;
        return err_set(err, rc, "cannot make %s: %s", e->log, strerror(-rc));
    }
    close(fd);
    struct proc_spec spec = { .argv = argv, .log_path = e->log };
    rc = proc_spawn(&spec, &e->proc, err);
    if (rc < 0) unlink(e->log);
    return rc < 0 ? err_prefix(err, rc, "muster engine") : 0;
}

void private_engine_stop(struct private_engine *e)
{
    struct proc_exit how;
    proc_signal(&e->proc.id, SIGTERM, NULL);
    if (proc_wait(&e->proc, STOP_US, &how) == -ETIMEDOUT) {
        proc_signal(&e->proc.id, SIGKILL, NULL);
        proc_wait(&e->proc, STOP_US, &how);
    }
    proc_close(&e->proc);
    unlink(e->log);
}

static int wait_loaded(const struct private_engine *e, int64_t timeout_us, struct err *err)
{
    int64_t until_us = clock_mono_us() + timeout_us;
    struct http_fetch_request req = {
        .host = STR("127.0.0.1"), .port = e->port, .path = STR("/health"), .timeout_us = CALL_US
    };
    for (;;) {
        CLEANUP(buf_fini) struct buf reply = { 0 };
        int status = 0;
        bool lives = proc_is_alive(&e->proc.id);
        int rc = http_fetch(&req, &status, &reply, NULL);
        if (!lives) {
            daemons_show_log(e->log);
            return err_set(err, -ECHILD, "the engine has ended; its own words are above");
        }
        if (rc == 0 && status == 200) return 0;
        if (clock_mono_us() >= until_us)
            return err_set(err, -ETIMEDOUT, "the model is not loaded yet; --timeout gives more");
        usleep(POLL_US);
    }
}

int private_engine_start(struct str model, const struct config_texts *flags, int64_t timeout_us,
                         struct private_engine *ret, struct err *err)
{
    *ret = (struct private_engine){ 0 };
    int rc = spawn(model, flags, ret, err);
    if (rc < 0) return rc;
    rc = wait_loaded(ret, timeout_us, err);
    if (rc < 0) private_engine_stop(ret);
    return rc;
}
