/* t_tls_fleet.c - runs a fleet by `muster up` over TLS: every port, every part that calls another,
 * every command, and a certificate that changes under a running stream.
 *
 * Parts show certificates to each other too (client_ca). curl is the foreign client; without it or
 * the openssl command the test is skipped. */
#include "base/core/own.h"
#include "base/io/loop/clock.h"
#include "tests/certs.h"
#include "tests/proc/rig/up_rig.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define QUESTION \
    "{\"model\":\"tiny\",\"prompt\":\"The moon is\",\"max_tokens\":8,\"temperature\":0}"
#define RELOADED_US 5000000 /* files are checked every two seconds */

static char router_url[64], ca[RIG_PATH];

static void copy(const char *from, const char *to)
{
    char command[256];
    snprintf(command, sizeof command, "cp %s %s.new && mv %s.new %s", from, to, to, to);
    assert_true(certs_run(rig_folder(), command));
}

static void write_config(void)
{
    CLEANUP(buf_fini) struct buf text = { 0 };
    const char *f = rig_folder();
    buf_printf(&text,
               "controller: { tick: 200ms, tls_certificate: %s/good.pem, tls_key: %s/good.key,\n"
               "              tls_client_ca: %s/ca.pem, tls_ca: %s/ca.pem }\n"
               "router: { tls_certificate: %s/live.pem, tls_key: %s/live.key, tls_ca: %s/ca.pem }\n"
               "engine: { tls_certificate: %s/again.pem, tls_key: %s/again.key,\n"
               "          tls_client_ca: %s/ca.pem, tls_ca: %s/ca.pem }\n",
               f, f, f, f, f, f, f, f, f, f, f);
    buf_text(&text,
             "local:\n"
             "  cores: 1\n"
             "  offers: [ { name: bit, share: 0.3, price_per_hour: 0.1, launch_delay: 100ms } ]\n"
             "services:\n"
             "  - name: tiny\n"
             "    model: " MODEL "\n"
             "    engine_flags: ['--threads', '1', '--max-num-seqs', '4']\n"
             "    pools: [ { name: only, offers: [bit], min: 1, max: 1 } ]\n");
    buf_byte(&text, 0);
    places_config(text.data);
}

static int make_fleet(void **state)
{
    places_make(state);
    copy("good.pem", "live.pem");
    copy("good.key", "live.key");
    write_config();
    rig_hurry_agents();
    WANT(0, "https://127.0.0.1", UP); /* an instance is ready: its agent reports over TLS */
    snprintf(router_url, sizeof router_url, "https://127.0.0.1:%u", places.router_port);
    snprintf(ca, sizeof ca, "%s/ca.pem", rig_folder());
    return 0;
}

static int end_fleet(void **state)
{
    return places_end(state) == 0 && rig_count(NULL) == 0 ? 0 : -1;
}

/* Runs curl with these options and QUESTION; returns its exit status, and in *out its output. */
static int curl(const char *options, struct buf *out)
{
    char command[1024], part[4096];
    snprintf(command, sizeof command,
             "curl -sS -m 60 %s -H 'content-type: application/json' -d '%s' "
             "%s/v1/completions 2>&1",
             options, QUESTION, router_url);
    FILE *f = popen(command, "r");
    assert_non_null(f);
    buf_clear(out);
    for (size_t n; (n = fread(part, 1, sizeof part, f)) > 0;)
        buf_append(out, part, n);
    buf_byte(out, 0);
    int status = pclose(f);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void clients_and_commands_speak_tls(void **state)
{
    (void)state;
    CLEANUP(buf_fini) struct buf out = { 0 };
    char options[RIG_PATH + 32], at[48];
    snprintf(options, sizeof options, "--cacert %s", ca);
    if (curl(options, &out) != 0 || !strstr(out.data, "\"finish_reason\":"))
        fail_msg("curl: %s", out.data);
    assert_int_equal(curl("", &out), 60); /* the system does not know this CA */
    assert_int_equal(curl("-k --tls-max 1.1", &out), 35);
    snprintf(options, sizeof options, "--cacert %s --tls-max 1.2", ca);
    if (curl(options, &out) != 0) fail_msg("curl: %s", out.data);

    /* Plain HTTP to the same port gets an error that says so. */
    assert_int_equal(rig_call(places.router_port, "/health", NULL, &out), 400);
    assert_non_null(strstr(out.data, "https://"));

    WANT(0, "tiny", "status", STATE); /* knows the CA from `up` */
    snprintf(at, sizeof at, "https://127.0.0.1:%u", places.controller_port);
    WANT(0, "\"tls\":true", "get", "instances", STATE, "-o", "json");
    WANT(1, "no TLS connection could be made", "get", "services", "--state", "/nonexistent",
         "--controller", at, "--ca", ca); /* we lack the certificate that it wants */
    WANT(0, "", "chat", "--url", router_url, "--ca", ca, "--max-tokens", "4", "Hello");
    WANT(1, "certificate", "chat", "--url", router_url, "--max-tokens", "4", "Hello");
    WANT(0, "\"ok\":3", "load", "--trace", "traces/mooncake-conversation-4min.jsonl", "--speed",
         "1000", "--divide", "512", "--requests", "3", "--max-tokens", "4", "--url", router_url,
         "--ca", ca, "-o", "json");
}

struct stream {
    size_t bytes;
    uint32_t events;
    bool renewed;
};

/* Changes the certificate within the stream, and waits until a new connection gets the new one. */
static int on_stream(void *arg, struct str data)
{
    struct stream *s = arg;
    s->bytes += data.len;
    if (s->events++ > 0) return 0;
    copy("stranger.pem", "live.pem");
    copy("stranger.key", "live.key");
    int64_t until_us = clock_mono_us() + RELOADED_US;
    CLEANUP(buf_fini) struct buf out = { 0 };
    char options[RIG_PATH + 32];
    snprintf(options, sizeof options, "--cacert %s/ca2.pem", rig_folder());
    while (!s->renewed && clock_mono_us() < until_us)
        s->renewed = curl(options, &out) == 0;
    return 0;
}

static void a_certificate_changes_under_a_stream(void **state)
{
    (void)state;
    static const char body[] =
        "{\"model\":\"tiny\",\"prompt\":\"The moon is\",\"stream\":true,\"max_tokens\":200,"
        "\"temperature\":0,\"ignore_eos\":true}";
    const struct http_header header = { STR("content-type"), STR("application/json") };
    struct stream s = { 0 };
    struct err err = { 0 };
    int status = 0;
    const struct http_fetch_request req = { .host = STR("127.0.0.1"),
                                            .port = places.router_port,
                                            .tls = true,
                                            .files = { .ca = str_from(ca) },
                                            .path = STR("/v1/completions"),
                                            .headers = &header,
                                            .header_count = 1,
                                            .body = str_from(body),
                                            .timeout_us = RIG_WAIT_US };
    int rc = http_fetch_stream(&req, &status, NULL, on_stream, &s, &err);
    if (rc < 0) fail_msg("%s", err.text);
    assert_int_equal(status, 200);
    assert_true(s.renewed && s.events > 1);
}

int main(void)
{
    if (!rig_can_run(ARGS("MUSTER_BIN", MODEL))) return RIG_SKIP;
    if (!certs_make(rig_folder()) || !certs_run(rig_folder(), "curl --version")) {
        printf("skipped: no openssl command that makes certificates, or no curl\n");
        return rig_end(0) == 0 ? RIG_SKIP : 1;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(clients_and_commands_speak_tls),
        cmocka_unit_test(a_certificate_changes_under_a_stream),
    };
    return rig_end(cmocka_run_group_tests(tests, make_fleet, end_fleet));
}
