/* probes.c - serves two paths that tell whether the agent lives and whether its engine takes requests.
 *
 * A kubelet takes a Pod out of a Service by the second and kills a container by the first. So the first
 * knows nothing of the engine: the supervisor restarts it, and a model may load for as long as it needs. */
#include "agent/probes.h"

#include "base/core/buf.h"
#include "base/core/own.h"
#include "base/io/http/http_server.h"
#include "base/io/net/addr.h"

#include <stdio.h>
#include <stdlib.h>

#define CONNECTIONS_MAX 64 /* probes come one at a time, from few askers */
#define BODY_BYTES_MAX ((size_t)1 << 10)

struct probes {
    struct http_server *server;
    probes_ready_fn *ready;
    void *arg;
};

static void on_request(void *ctx, struct http_exchange *x)
{
    struct probes *f = ctx;
    const struct http_request *q = http_exchange_request(x);
    bool reads = str_eq(q->method, STR("GET")) || str_eq(q->method, STR("HEAD"));
    CLEANUP(buf_fini) struct buf body = { .max = BODY_BYTES_MAX };
    const char *state = "alive";
    int status = 404;
    if (!reads)
        status = 405;
    else if (str_eq(q->path, STR("/health")))
        status = 200;
    else if (str_eq(q->path, STR("/ready")))
        status = f->ready(f->arg, &state) ? 200 : 503;
    buf_printf(&body, "%s\n", status == 404 ? "no such path" : status == 405 ? "GET only" : state);
    if (status == 405) (void)http_reply_header(x, "allow", STR("GET, HEAD"));
    http_reply(x, status, STR("text/plain"), buf_view(&body));
}

int probes_open(struct loop *l, struct str listen, probes_ready_fn *ready, void *arg,
                struct probes **ret, struct err *err)
{
    struct addr at;
    char host[ADDR_TEXT_MAX];
    int rc = addr_parse(&at, listen, err);
    if (rc < 0) return err_prefix(err, rc, "agent.listen");
    struct probes *f = calloc(1, sizeof *f);
    must(f);
    f->ready = ready;
    f->arg = arg;
    addr_host(&at, host);
    const struct http_server_config config = {
        .host = host,
        .port = at.port,
        .limits = { .connections_max = CONNECTIONS_MAX, .body_bytes_max = BODY_BYTES_MAX },
        .on_request = on_request,
        .ctx = f,
    };
    rc = http_server_new(l, &config, &f->server, err);
    if (rc < 0) {
        free(f);
        return err_prefix(err, rc, "agent.listen");
    }
    *ret = f;
    return 0;
}

void probes_close(struct probes *f)
{
    if (!f) return;
    http_server_free(f->server);
    free(f);
}
