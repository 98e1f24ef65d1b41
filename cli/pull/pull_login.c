/* pull_login.c - drives a cloud kind's login, and nothing else of the kind, for requests of `muster pull`.
 *
 * A kind here has one step, the login; the run's budget, retries and deadline are those of the controller's calls
 * (web_run.h). What a store is to be asked with afterwards is a bearer token, or a signature over each request. */
#include "cli/pull/pull_login.h"

#include "base/core/bits.h"
#include "base/core/hash.h"
#include "base/io/loop/clock.h"
#include "base/io/net/addr.h"
#include "cli/pull/pull_store.h"
#include "controller/cloud/web/aws_login.h"
#include "controller/cloud/web/aws_sign.h"
#include "controller/cloud/web/azure_login.h"
#include "controller/cloud/web/gce_login.h"
#include "controller/cloud/web/web_cloud.h"
#include "controller/cloud/web/web_step.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Of buckets without another, and of most stores that are not Amazon's. */
#define REGION "us-east-1"
#define LATER_US 50000
#define BLOB_VERSION "2021-08-06" /* any from 2017-11-09 on takes a bearer token */

struct pull_login {
    struct pull_login_config config;
    struct web_kind kind;
    struct web_section section;
    struct web_settings settings;
    struct web_api api;
    bool signs;   /* rules 1 and 2 */
    bool renewed; /* after a refusal of a signed request, once */
    char region[PULL_REGION_BYTES], sts[512];
    char date[AWS_DATE_BYTES], empty[SHA256_HEX + 1];
    struct buf authorization;
    struct fetch_header header[PULL_LOGIN_HEADERS];
    /* a login under way */
    struct web_run run;
    struct fetch_call *call;
    bool replied;
    enum web_turn turn;
};

static struct str variable(const struct pull_login *l, const char *name)
{
    return web_environment(&l->api.host, str_from(name));
}

/* ---- the kinds */

static const char *const date_header[] = { "date", NULL };

static void s3_step(struct web_provider *p, struct web_op *op, const struct web_reply *reply,
                    int64_t now_us, int64_t wall_us, struct web_step *ret)
{
    struct pull_login *l = p->own;
    struct str named = variable(l, "AWS_ENDPOINT_URL_STS");
    if (named.len > 0)
        snprintf(l->sts, sizeof l->sts, STR_FMT, STR_ARG(named));
    else
        snprintf(l->sts, sizeof l->sts, "https://sts.%s.amazonaws.com%s", l->region,
                 strncmp(l->region, "cn-", 3) == 0 ? ".cn" : "");
    aws_login(p, op, reply, str_from(l->sts), now_us, wall_us, ret);
}

static void gcs_step(struct web_provider *p, struct web_op *op, const struct web_reply *reply,
                     int64_t now_us, int64_t wall_us, struct web_step *ret)
{
    gce_login(p, op, reply, now_us, wall_us, ret);
}

static void blob_step(struct web_provider *p, struct web_op *op, const struct web_reply *reply,
                      int64_t now_us, int64_t wall_us, struct web_step *ret)
{
    (void)wall_us;
    azure_login(p, op, reply, now_us, ret);
}

static const struct web_kind kinds[] = {
    [PULL_STORE_S3] = { .name = "s3", .step = s3_step, .reply_headers = date_header },
    [PULL_STORE_GCS] = { .name = "gs",
                         .step = gcs_step,
                         .reply_headers = date_header,
                         .token_for = "https://www.googleapis.com/auth/devstorage.read_only" },
    [PULL_STORE_BLOB] = { .name = "az",
                          .step = blob_step,
                          .credentials_env = "AZURE_CLIENT_SECRET",
                          .token_for = "https://storage.azure.com" },
};

/* True if the environment or a file names credentials. A client id alone chooses among a machine's identities. */
static bool are_named(const struct pull_login *l)
{
    static const char *const names[][4] = {
        [PULL_STORE_S3] = { "AWS_ACCESS_KEY_ID", "AWS_PROFILE", "AWS_WEB_IDENTITY_TOKEN_FILE",
                            "AWS_SHARED_CREDENTIALS_FILE" },
        [PULL_STORE_GCS] = { "GOOGLE_APPLICATION_CREDENTIALS" },
        [PULL_STORE_BLOB] = { "AZURE_CLIENT_SECRET", "AZURE_FEDERATED_TOKEN_FILE" },
    };
    char path[4096];
    for (size_t i = 0; i < 4; i++) {
        const char *name = names[l->config.store][i];
        if (name && variable(l, name).len > 0) return true;
    }
    struct str home = variable(l, "HOME");
    int len = snprintf(path, sizeof path, STR_FMT "/.aws/credentials", STR_ARG(home));
    return l->config.store == PULL_STORE_S3 && home.len > 0 && len < (int)sizeof path &&
           access(path, F_OK) == 0;
}

int pull_login_open(const struct pull_login_config *config, struct pull_login **ret,
                    struct err *err)
{
    struct pull_login *l = calloc(1, sizeof *l);
    uint8_t digest[SHA256_BYTES];
    must(l);
    l->config = *config;
    l->kind = kinds[config->store];
    l->settings = (struct web_settings){ .section = &l->section,
                                         .kind = &l->kind,
                                         .name = str_from(l->kind.name),
                                         .endpoint = config->endpoint,
                                         .fleet = STR("muster") };
    const struct web_host host = { .environ = config->environment, .read_secret = web_read_secret };
    int rc = web_api_open(&l->api, &l->settings, &host, (uint64_t)clock_mono_us(), err);
    if (rc < 0) {
        free(l);
        return rc;
    }
    l->api.provider.own = l;
    struct str region = variable(l, "AWS_REGION");
    if (region.len == 0) region = variable(l, "AWS_DEFAULT_REGION");
    if (region.len == 0 || region.len >= sizeof l->region) region = STR(REGION);
    snprintf(l->region, sizeof l->region, STR_FMT, STR_ARG(region));
    sha256("", 0, digest);
    hex_from(digest, sizeof digest, l->empty);
    l->signs = are_named(l);
    *ret = l;
    return 0;
}

void pull_login_free(struct pull_login *l)
{
    if (!l) return;
    if (l->authorization.data) explicit_bzero(l->authorization.data, l->authorization.len);
    buf_fini(&l->authorization);
    web_api_close(&l->api);
    free(l);
}

struct str pull_login_region(const struct pull_login *l)
{
    return str_from(l->region);
}

/* ---- a login */

static void on_end(void *arg, const struct fetch_reply *reply)
{
    struct pull_login *l = arg;
    struct web_reply r;
    web_wire_reply(&l->kind, l->call, reply, &r);
    l->call = NULL;
    l->replied = true;
    l->turn = web_run_turn(&l->run, &r, clock_mono_us(), clock_wall_us());
}

static void on_time(void *arg)
{
    *(bool *)arg = true;
}

/* Makes the turn's request, or waits as it says. */
static int carry_out(struct pull_login *l, struct err *err)
{
    bool over = false;
    struct loop_timer timer = { .fn = on_time, .arg = &over };
    int64_t now_us = clock_mono_us();
    int rc;
    l->replied = false;
    if (l->turn == WEB_TURN_ASK)
        rc = web_wire_start(l->config.fetch, &l->run, now_us, loop_now_us(l->config.loop), on_end,
                            l, &l->call, err);
    else
        rc = loop_timer_set(l->config.loop, &timer, max_i64(l->run.wait_us, now_us));
    while (rc == 0 && !over && !l->replied && !*l->config.stopped)
        rc = loop_turn(l->config.loop, -1);
    loop_timer_clear(l->config.loop, &timer);
    if (l->call) fetch_cancel(l->call);
    l->call = NULL;
    (void)loop_turn(l->config.loop, 0); /* the ended call is freed at the end of a turn */
    if (rc == 0 && *l->config.stopped) return -EINTR;
    if (over) l->turn = web_run_turn(&l->run, NULL, clock_mono_us(), clock_wall_us());
    return rc;
}

static int log_in(struct pull_login *l, struct err *err)
{
    int rc = web_run_begin(&l->run, &l->api, NULL, NULL, NULL, clock_mono_us(), err);
    if (rc < 0) return rc;
    l->turn = web_run_turn(&l->run, NULL, clock_mono_us(), clock_wall_us());
    while (rc == 0 && l->turn != WEB_TURN_DONE)
        rc = carry_out(l, err);
    if (rc == 0 && l->run.step.rc < 0)
        rc = err_set(err, l->run.step.rc, "%s: %s", l->kind.name,
                     err_text(&l->run.step.err, l->run.step.rc));
    web_run_fini(&l->run);
    l->run = (struct web_run){ 0 };
    return rc;
}

int pull_login_ready(struct pull_login *l, struct err *err)
{
    const struct web_login *w = &l->api.provider.login;
    if (!l->signs) return 0;
    if (l->config.store != PULL_STORE_S3 && l->config.endpoint.len > 0 &&
        !addr_url_is_private(l->config.endpoint))
        return err_set(err, -EPERM,
                       "a token would go over http:// unprotected: let the endpoint be https://");
    bool due = w->expires_us > 0 && clock_mono_us() > w->expires_us - WEB_LOGIN_MARGIN_US;
    return w->made && !due ? 0 : log_in(l, err);
}

/* ---- requests */

static int sign_s3(struct pull_login *l, struct str url)
{
    const struct web_login *w = &l->api.provider.login;
    const struct aws_key key = { str_from(w->key_id), str_from(w->key), str_from(w->token) };
    struct str rest = url;
    (void)str_cut(&rest, ':');
    rest = str_of(rest.data + 2, rest.len - 2);
    struct str query = rest, target = str_cut(&query, '?'), path = target;
    struct str host = str_cut(&path, '/');
    if (path.data) path = str_of(path.data - 1, path.len + 1);
    const struct aws_header empty = { STR("x-amz-content-sha256"), str_from(l->empty) };
    const struct aws_request req = { .method = STR("GET"),
                                     .host = host,
                                     .path = path,
                                     .query = query,
                                     .header = &empty,
                                     .header_count = 1,
                                     .region = str_from(l->region),
                                     .service = STR("s3") };
    aws_date(clock_wall_us() + w->skew_us, l->date);
    buf_clear(&l->authorization);
    int rc = aws_sign(&req, &key, l->date, &l->authorization);
    l->header[0] = (struct fetch_header){ STR("authorization"), buf_view(&l->authorization) };
    l->header[1] = (struct fetch_header){ STR("x-amz-date"), str_from(l->date) };
    l->header[2] = (struct fetch_header){ empty.name, empty.value };
    l->header[3] = (struct fetch_header){ STR("x-amz-security-token"), key.token };
    return rc;
}

static int sign_bearer(struct pull_login *l)
{
    buf_clear(&l->authorization);
    l->header[0] = (struct fetch_header){ STR("authorization"), STR("") };
    int rc = buf_printf(&l->authorization, "Bearer %s", l->api.provider.login.token);
    l->header[0].value = buf_view(&l->authorization);
    return rc;
}

int pull_login_sign(struct pull_login *l, struct str url, const struct fetch_header *ret[1],
                    size_t *ret_count)
{
    const struct web_login *w = &l->api.provider.login;
    bool s3 = l->config.store == PULL_STORE_S3, signs = l->signs && w->made;
    size_t count = 0;
    int rc = 0;
    if (signs && s3) {
        rc = sign_s3(l, url);
        count = w->token && w->token[0] ? 4 : 3;
    } else if (signs) {
        rc = sign_bearer(l);
        count = 1;
    }
    if (l->config.store == PULL_STORE_BLOB)
        l->header[count++] = (struct fetch_header){ STR("x-ms-version"), STR(BLOB_VERSION) };
    *ret = l->header;
    *ret_count = count;
    return rc;
}

enum pull_login_verdict pull_login_refused(struct pull_login *l, int status, struct str region)
{
    /* Azure says 404 or 409 of a container that is not public, so as not to tell that it is there. */
    bool refused = status == 401 || status == 403 ||
                   (l->config.store == PULL_STORE_BLOB && (status == 404 || status == 409));
    if (region.len > 0 && region.len < sizeof l->region && !str_eq(region, str_from(l->region))) {
        for (size_t i = 0; i < region.len; i++)
            if (!strchr("abcdefghijklmnopqrstuvwxyz0123456789-", region.data[i]))
                return PULL_LOGIN_NO;
        snprintf(l->region, sizeof l->region, STR_FMT, STR_ARG(region));
        return PULL_LOGIN_MOVED;
    }
    if (!refused) return PULL_LOGIN_NO;
    if (!l->signs) {
        l->signs = true;
        return PULL_LOGIN_AGAIN;
    }
    /* Once: a session may have been ended early, or a key rotated. */
    if (l->renewed) return PULL_LOGIN_NO;
    l->renewed = true;
    l->api.provider.login.made = false;
    return PULL_LOGIN_AGAIN;
}
