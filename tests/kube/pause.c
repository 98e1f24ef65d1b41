/* pause.c - sleep as PID 1 of a pod's sandbox, or of a node, and reap what is left there.
 *
 * Orphans of a PID namespace become children of its first process, which alone can reap them. SIGTERM and
 * SIGINT end it, and with it the namespace. Built static: its image holds nothing else. */
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static void end(int signal_number)
{
    (void)signal_number;
    _exit(0);
}

static void reap(int signal_number)
{
    (void)signal_number;
    while (waitpid(-1, NULL, WNOHANG) > 0)
        ;
}

int main(void)
{
    signal(SIGTERM, end);
    signal(SIGINT, end);
    signal(SIGCHLD, reap);
    /* Children that ended before the handler was there. */
    reap(SIGCHLD);
    for (;;)
        pause();
}
