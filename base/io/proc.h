/* proc.h - starts processes, recognises them after a restart of our own, and signals no other process.
 *
 * Layer:    base/io (base/core)
 * Identity: a pid is reused, so a process is pid + start time (clock ticks since boot, field 22
 *           of /proc/PID/stat) + boot; it stays the same across exec and for adopted processes
 * Signals:  go through a pidfd that was checked against the identity, so a pid that was reused
 *           meanwhile gets nothing
 */
#pragma once
#include "base/core/err.h"
#include "base/core/str.h"

#include <sys/types.h>

#define PROC_ID_TEXT_MAX 64
#define PROC_ARGS_MAX 256 /* arguments, and environment additions */

struct proc_id {
    int64_t pid; /* 0: none */
    uint64_t start_ticks;
    uint64_t boot; /* digest of the kernel's boot id */
};

struct proc {
    struct proc_id id;
    int pidfd;  /* readable when the process has ended: watch it in a loop; valid while id.pid */
    bool child; /* ours: proc_reap gives its exit status */
};

struct proc_exit {
    bool known;  /* false for adopted processes: only a parent learns how a process ended */
    bool killed; /* by a signal: code is its number */
    int code;
};

struct proc_spec {
    const char *const *argv; /* NULL-terminated; argv[0] is searched in PATH without a slash */
    const char *const
        *env_add;         /* NULL-terminated NAME=value, replacing ours of that name; or NULL */
    bool env_alone;       /* env_add is the whole environment */
    const char *cwd;      /* NULL: ours */
    const char *log_path; /* stdout and stderr are appended there, mode 0600; NULL: ours */
    int in_fd;            /* stdin; borrowed for the call; 0: /dev/null */
    int out_fd, err_fd; /* where stdout and stderr go instead; borrowed for the call; 0: as above */
    bool detached;      /* lives on when we die; otherwise it is killed with the spawning thread */
};

/* Starts the program in a session of its own with default signals, an empty mask and no descriptor but
 * 0, 1, 2. Returns after exec succeeded, or with the error of exec. *ret is closed
 * with proc_close. */
int proc_spawn(const struct proc_spec *spec, struct proc *ret, struct err *err);

/* Opens a pidfd for a process that may not be our child. -ESRCH when it is gone. */
int proc_adopt(const struct proc_id *id, struct proc *ret, struct err *err);
void proc_close(struct proc *p); /* our descriptor only; the process runs on */

/* Collects the status of a child after pidfd became readable. -EAGAIN while it runs. */
int proc_reap(struct proc *p, struct proc_exit *ret);

/* Reaps every child that has ended, for a process that starts others and waits for none of them.
 * Returns how many. */
uint32_t proc_reap_all(void);

/* Waits for the end, then reaps. -ETIMEDOUT. */
int proc_wait(struct proc *p, int64_t timeout_us, struct proc_exit *ret);

/* Draws the key of hash_keyed (base/core/hash.h) for this process; called when a role starts, before any
 * table exists. -EIO without random bytes: a role does not serve under a key that is known. */
int proc_hash_key_draw(struct err *err);

/* Keeps this process's memory, which has keys in it, out of core dumps, of files and of programs that take them, and
 * from other processes of the same user. Root may still read and trace it. Programs that it starts inherit the limit on
 * core files and no more. */
int proc_guard_memory(struct err *err);

int proc_id_of(pid_t pid, struct proc_id *ret); /* -ESRCH */
struct proc_id proc_id_self(void);
bool proc_id_eq(const struct proc_id *a, const struct proc_id *b);
bool proc_is_alive(const struct proc_id *id); /* a zombie is not */

/* Signals the process, or its whole session's process group. -ESRCH when it is gone or another process
 * has its pid now. */
int proc_signal(const struct proc_id *id, int signo, struct err *err);
int proc_signal_group(const struct proc_id *id, int signo, struct err *err);

/* Prints "pid 123 start 456 boot 89abcdef01234567", the form in lock files, reports and the store. */
void proc_id_print(const struct proc_id *id, char ret[PROC_ID_TEXT_MAX]);
int proc_id_parse(struct str text, struct proc_id *ret); /* -EINVAL */

/* Returns how many processes of this control group the kernel has killed for want of memory; 0 where that is
 * not told. */
uint64_t proc_oom_kills(void);

/* Gets the path of the running program, which `muster up` starts again with other arguments. */
int proc_self_path(char *ret, size_t size);
