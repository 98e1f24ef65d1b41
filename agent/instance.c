/* instance.c - locks an instance, keeps its engine's identity, and turns an agent's child into the engine. */
#include "agent/instance.h"

#include "base/core/bits.h"
#include "base/core/hash.h"
#include "base/core/own.h"
#include "base/io/file.h"
#include "base/io/log.h"
#include "base/io/loop/clock.h"

#include <fcntl.h>
#include <limits.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define ENGINE_PORT_FIRST 8200
#define ENGINE_PORT_COUNT 800
#define ID_BYTES_MAX 256
#define DOCUMENT_LOOK_NS 500000000
#define SPEC_ARENA_BYTES (2 * LAUNCH_BYTES_MAX)

/* Sets birth and start on this boot's clock. A document of another boot or machine has only dates; they
 * are converted once, here. */
static void set_times(struct instance *in, int64_t written_wall_us)
{
    const struct launch_spec *s = &in->spec;
    int64_t mono_us = clock_mono_us(), ahead_us = clock_wall_us() - mono_us;
    bool ours = s->born_mono_us > 0 && s->boot == proc_id_self().boot;
    in->born_us = ours ? s->born_mono_us : written_wall_us - ahead_us;
    in->start_us = ours ? s->start_mono_us : s->start_wall_us - ahead_us;
}

void instance_await(struct str spec_path)
{
    const struct timespec pause = { .tv_nsec = DOCUMENT_LOOK_NS };
    struct stat st;
    bool told = false;
    while (stat(spec_path.data, &st) == 0 && st.st_size == 0) {
        if (!told) log_event(LOG_INFO, "launch_awaited", "document=%s", spec_path.data);
        told = true;
        nanosleep(&pause, NULL);
    }
}

int instance_open(struct instance *in, struct str spec_path, struct err *err)
{
    *in = (struct instance){ .lock_fd = -1 };
    arena_init(&in->arena, SPEC_ARENA_BYTES);
    if (!realpath(spec_path.data, in->spec_path))
        return err_set(err, -errno, "%s: %s", spec_path.data, strerror(errno));
    CLEANUP(buf_fini) struct buf text = { 0 };
    int rc = file_read(in->spec_path, LAUNCH_BYTES_MAX, &text, err);
    if (rc == 0) rc = launch_spec_decode(buf_view(&text), &in->arena, &in->spec, err);
    if (rc < 0) return err_prefix(err, rc, "%s", spec_path.data);
    struct stat st;
    if (stat(in->spec_path, &st) < 0) return err_set(err, -errno, "%s", in->spec_path);
    set_times(in, (int64_t)st.st_mtim.tv_sec * 1000000 + st.st_mtim.tv_nsec / 1000);
    if (in->spec.folder.len) return 0;
    /* A document that names no folder means its own. */
    struct str folder = str_from(in->spec_path);
    while (folder.len > 1 && folder.data[folder.len - 1] != '/')
        folder.len--;
    if (folder.len > 1) folder.len--;
    in->spec.folder = arena_str(&in->arena, folder);
    return in->spec.folder.data ? 0 : err_set(err, -ENOMEM, "no memory");
}

int instance_adopt(struct instance *in, const struct launch_spec *spec, uint16_t port,
                   struct err *err)
{
    *in = (struct instance){ .lock_fd = -1, .adopts = true, .adopted_port = port, .spec = *spec };
    arena_init(&in->arena, SPEC_ARENA_BYTES);
    in->born_us = in->start_us = clock_mono_us();
    if (spec->instance.len > 0) return 0;
    /* The same engine has the same name after each start of its agent. */
    CLEANUP(buf_fini) struct buf name = { 0 };
    uint64_t where = hash64(spec->engine_host.data, spec->engine_host.len, port);
    buf_printf(&name, "a-%012llx", (unsigned long long)(where >> 16));
    in->spec.instance = arena_str(&in->arena, buf_view(&name));
    return in->spec.instance.data ? 0 : err_set(err, -ENOMEM, "no memory");
}

void instance_close(struct instance *in)
{
    if (in->lock_fd >= 0) file_unlock(in->lock_fd);
    arena_fini(&in->arena);
    *in = (struct instance){ .lock_fd = -1 };
}

static int path_of(const struct instance *in, const char *file, char ret[PATH_MAX], struct err *err)
{
    int n = snprintf(ret, PATH_MAX, STR_FMT "/%s", STR_ARG(in->spec.folder), file);
    if (n < 0 || n >= PATH_MAX) return err_set(err, -ENAMETOOLONG, "the instance's folder");
    return 0;
}

int instance_lock(struct instance *in, struct err *err)
{
    char path[PATH_MAX];
    int rc = path_of(in, "agent.lock", path, err);
    return rc < 0 ? rc : file_lock(path, &in->lock_fd, err);
}

/* engine.id holds "pid .. start .. boot ..\nport N\n". */
int instance_find_engine(const struct instance *in, struct proc *ret, uint16_t *ret_port)
{
    char path[PATH_MAX];
    CLEANUP(buf_fini) struct buf text = { 0 };
    if (path_of(in, "engine.id", path, NULL) < 0) return -ENOENT;
    if (file_read(path, ID_BYTES_MAX, &text, NULL) < 0) return -ENOENT;
    struct str rest = buf_view(&text);
    struct str who = str_trim(str_cut(&rest, '\n'));
    struct str port = str_trim(str_cut(&rest, '\n'));
    struct proc_id id;
    uint64_t number;
    if (proc_id_parse(who, &id) < 0 || !str_starts(port, STR("port "))) return -ENOENT;
    if (str_to_u64(str_of(port.data + 5, port.len - 5), &number) < 0 || number > 65535)
        return -ENOENT;
    if (!proc_is_alive(&id) || proc_adopt(&id, ret, NULL) < 0) return -ENOENT;
    *ret_port = (uint16_t)number;
    return 0;
}

static bool port_is_free(uint16_t port)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return false;
    int on = 1; /* as the engine's own listener: connections that linger do not count */
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    struct sockaddr_in sa = { .sin_family = AF_INET,
                              .sin_port = htons(port),
                              .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    bool is_free = bind(fd, (const struct sockaddr *)&sa, sizeof sa) == 0;
    close(fd);
    return is_free;
}

/* Finds a free port. Each instance begins its search at a port of its own, so that two that start
 * together seldom want the same one; when they do, one engine fails to bind and is started again on
 * another port. One that is alone has the first, which monitors and network rules can name. */
static int find_port(const struct instance *in, uint16_t *ret, struct err *err)
{
    uint64_t place =
        in->alone ? 0 : hash64(in->spec.instance.data, in->spec.instance.len, (uint64_t)getpid());
    for (uint32_t i = 0; i < ENGINE_PORT_COUNT; i++) {
        uint16_t port = (uint16_t)(ENGINE_PORT_FIRST + (place + i) % ENGINE_PORT_COUNT);
        if (!port_is_free(port)) continue;
        *ret = port;
        return 0;
    }
    return err_set(err, -EADDRINUSE, "no port from %d to %d is free", ENGINE_PORT_FIRST,
                   ENGINE_PORT_FIRST + ENGINE_PORT_COUNT - 1);
}

int instance_spawn(const struct instance *in, struct proc *ret, uint16_t *ret_port, struct err *err)
{
    char program[PATH_MAX], log[PATH_MAX], number[8];
    uint16_t port = 0;
    int rc = proc_self_path(program, sizeof program);
    if (rc < 0) return err_set(err, rc, "our own program cannot be found");
    rc = path_of(in, "engine.log", log, err);
    if (rc == 0) rc = find_port(in, &port, err);
    if (rc < 0) return rc;
    snprintf(number, sizeof number, "%u", port);
    const char *const argv[] = { program,         "agent", "--spec", in->spec_path,
                                 "--engine-port", number,  NULL };
    struct proc_spec what = { .argv = argv,
                              .log_path = in->shares_log ? NULL : log,
                              .detached = true };
    rc = proc_spawn(&what, ret, err);
    if (rc == 0) *ret_port = port;
    return rc;
}

/* The file is copied and emptied rather than renamed: the engine has its own descriptor, which appends.
 * Lines written between the two steps are lost. */
void instance_bound_log(const struct instance *in, uint64_t bytes_max)
{
    char path[PATH_MAX], older[PATH_MAX];
    struct stat st;
    if (path_of(in, "engine.log", path, NULL) < 0 || path_of(in, "engine.log.1", older, NULL) < 0)
        return;
    if (stat(path, &st) < 0 || (uint64_t)st.st_size < bytes_max) return;
    int from = open(path, O_RDONLY | O_CLOEXEC);
    int to = open(older, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    for (off_t left = st.st_size; from >= 0 && to >= 0 && left > 0;) {
        ssize_t n = sendfile(to, from, NULL, (size_t)left);
        if (n <= 0)
            break; /* a full disk: lines that do not fit are dropped, so that new ones can be written */
        left -= n;
    }
    if (to >= 0) close(to);
    if (from >= 0) close(from);
    if (truncate(path, 0) < 0)
        log_event(LOG_WARN, "log_not_bounded", "path=%s error=%s", path, strerror(errno));
}

/* ---- the other side of the spawn ---- */

bool instance_kv_paths(const struct instance *in, char ret_events[INSTANCE_SOCKET_BYTES],
                       char ret_replay[INSTANCE_SOCKET_BYTES])
{
    const struct launch_spec *s = &in->spec;
    if (!s->kv_events || in->adopts || !engine_driver_of(s->kind)->publishes_kv) return false;
    int n = snprintf(ret_events, INSTANCE_SOCKET_BYTES, STR_FMT "/kv.events", STR_ARG(s->folder));
    int m = snprintf(ret_replay, INSTANCE_SOCKET_BYTES, STR_FMT "/kv.replay", STR_ARG(s->folder));
    return n < INSTANCE_SOCKET_BYTES && m < INSTANCE_SOCKET_BYTES;
}

static int write_identity(const struct instance *in, uint16_t port, struct err *err)
{
    char path[PATH_MAX], who[PROC_ID_TEXT_MAX], text[ID_BYTES_MAX];
    struct proc_id self = proc_id_self();
    proc_id_print(&self, who);
    snprintf(text, sizeof text, "%s\nport %u\n", who, port);
    int rc = path_of(in, "engine.id", path, err);
    /* Fails when the folder was removed meanwhile: then no engine is wanted any more. */
    return rc < 0 ? rc : file_write_atomic(path, str_from(text), 0600, err);
}

int instance_become_engine(const struct instance *in, uint16_t port, struct err *err)
{
    const struct launch_spec *s = &in->spec;
    const struct engine_driver *driver = engine_driver_of(s->kind);
    char events[INSTANCE_SOCKET_BYTES], replay[INSTANCE_SOCKET_BYTES], program[PATH_MAX];
    CLEANUP(arena_fini) struct arena arena;
    arena_init(&arena, SPEC_ARENA_BYTES);
    struct engine_command command = { .arena = &arena };
    struct engine_start start = { .spec = s, .port = port };
    if (!driver->command)
        return err_set(err, -EINVAL, "engines of kind %s are adopted, not started",
                       engine_kind_names[s->kind]);
    if (instance_kv_paths(in, events, replay)) {
        start.kv_events = events;
        start.kv_replay = replay;
    }
    int rc = write_identity(in, port, err);
    if (rc < 0) return rc;
    driver->command(&command, &start);
    if (command.rc < 0) return err_set(err, command.rc, "the engine's command line");
    for (uint32_t i = 0; i < command.env_count; i++)
        putenv((char *)(uintptr_t)command.env[i]); /* lives until exec, as the arena does */
    if (str_eq(str_from(command.arg[0]), STR(LAUNCH_SELF)) &&
        proc_self_path(program, sizeof program) == 0)
        command.arg[0] = program;
    execvp(command.arg[0], (char *const *)(uintptr_t)command.arg);
    return err_set(err, -errno, "%s: %s", command.arg[0], strerror(errno));
}
