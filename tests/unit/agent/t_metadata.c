/* t_metadata.c - tests what metadata services are asked and what their replies mean: those of the providers'
 * documents, and what must not end a machine. */
#include "agent/metadata.h"
#include "base/core/bits.h"
#include "tests/unit/unit.h"

#include <errno.h>

#define NOW 1772366400000000 /* 2026-03-01T12:00:00Z */
#define UNKNOWN (-1)

struct row {
    enum notice_source source;
    int status;
    const char *body;
    enum notice_found found;
    int64_t left_us;
};

static void replies_are_understood(void **state)
{
    (void)state;
    static const struct row rows[] = {
        { NOTICE_EC2, 200, "{\"action\": \"terminate\", \"time\": \"2026-03-01T12:02:00Z\"}",
          NOTICE_LEAVES, 120000000 },
        { NOTICE_EC2, 200, "{\"action\":\"stop\",\"time\":\"2026-03-01T11:59:00Z\"}", NOTICE_LEAVES,
          0 },
        { NOTICE_EC2, 404, "<html>404 - Not Found</html>", NOTICE_AGAIN, UNKNOWN },
        { NOTICE_EC2, 200, "{\"action\":\"terminate\",\"time\":\"soon\"}", NOTICE_NOTHING,
          UNKNOWN },
        { NOTICE_EC2, 200, "{\"time\":\"2026-03-01T12:02:00Z\"}", NOTICE_NOTHING, UNKNOWN },
        { NOTICE_EC2, 500, "{\"action\":\"terminate\",\"time\":\"2026-03-01T12:02:00Z\"}",
          NOTICE_NOTHING, UNKNOWN },
        { NOTICE_EC2, 0, "", NOTICE_NOTHING, UNKNOWN },
        { NOTICE_GCE, 200, "FALSE", NOTICE_NOTHING, UNKNOWN },
        { NOTICE_GCE, 200, "TRUE", NOTICE_LEAVES, 30000000 },
        { NOTICE_GCE, 200, "TRUE?", NOTICE_NOTHING, UNKNOWN },
        { NOTICE_GCE, 503, "TRUE", NOTICE_NOTHING, UNKNOWN },
        { NOTICE_AZURE, 200, "{\"DocumentIncarnation\":1,\"Events\":[]}", NOTICE_NOTHING, UNKNOWN },
        { NOTICE_AZURE, 200,
          "{\"Events\":[{\"EventType\":\"Preempt\",\"Resources\":[\"I-1\"],"
          "\"NotBefore\":\"Sun, 01 Mar 2026 12:00:40 GMT\"}]}",
          NOTICE_LEAVES, 40000000 },
        /* one that has begun, beside a later one */
        { NOTICE_AZURE, 200,
          "{\"Events\":[{\"EventType\":\"Terminate\",\"Resources\":[\"i-0\",\"i-1\"],"
          "\"NotBefore\":\"Sun, 01 Mar 2026 12:00:40 GMT\"},"
          "{\"EventType\":\"Preempt\",\"Resources\":[\"i-1\"],\"NotBefore\":\"\"}]}",
          NOTICE_LEAVES, 0 },
        { NOTICE_AZURE, 200,
          "{\"Events\":[{\"EventType\":\"Preempt\",\"Resources\":[\"i-10\"],\"NotBefore\":\"\"}]}",
          NOTICE_NOTHING, UNKNOWN },
        { NOTICE_AZURE, 200,
          "{\"Events\":[{\"EventType\":\"Reboot\",\"Resources\":[\"i-1\"],\"NotBefore\":\"\"}]}",
          NOTICE_NOTHING, UNKNOWN },
        { NOTICE_AZURE, 200,
          "{\"Events\":[{\"EventType\":\"Preempt\",\"Resources\":", NOTICE_NOTHING, UNKNOWN },
        { NOTICE_AZURE, 404, "{\"Events\":[]}", NOTICE_NOTHING, UNKNOWN },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct metadata m = { .source = rows[i].source, .machine = STR("i-1"), .token = "t" };
        int64_t left_us = UNKNOWN;
        char why[NOTICE_WHY_BYTES] = "";
        enum notice_found found =
            metadata_take(&m, rows[i].status, str_from(rows[i].body), NOW, &left_us, why);
        if (found != rows[i].found || left_us != rows[i].left_us ||
            (found == NOTICE_LEAVES) != (why[0] != 0))
            fail_msg("row %zu: found %d, %lld us left, why '%s'", i, (int)found, (long long)left_us,
                     why);
    }
}

static void ask_is(const struct metadata *m, const char *method, const char *url,
                   const char *header, const char *value)
{
    struct metadata_request q;
    assert_int_equal(metadata_ask(m, &q), 0);
    assert_string_equal(q.method, method);
    assert_string_equal(q.url, url);
    assert_string_equal(q.header, header);
    assert_string_equal(q.value, value);
}

static enum notice_found take(struct metadata *m, int status, const char *body)
{
    int64_t left_us;
    char why[NOTICE_WHY_BYTES];
    return metadata_take(m, status, str_from(body), NOW, &left_us, why);
}

/* EC2 wants a token first, and another one when that is too old. What is no token is asked for again later. */
static void a_session_of_ec2_has_a_token(void **state)
{
    (void)state;
    struct metadata m = { .source = NOTICE_EC2, .base = STR("http://127.0.0.1:7") };
    const char *token_url = "http://127.0.0.1:7/latest/api/token";
    const char *ttl = "x-aws-ec2-metadata-token-ttl-seconds";
    ask_is(&m, "PUT", token_url, ttl, "21600");
    assert_int_equal(take(&m, 403, "x"), NOTICE_NOTHING);
    assert_int_equal(take(&m, 200, "a\r\nb: c"), NOTICE_NOTHING);
    assert_int_equal(take(&m, 200, ""), NOTICE_NOTHING);
    ask_is(&m, "PUT", token_url, ttl, "21600");
    assert_int_equal(take(&m, 200, "AQAE=="), NOTICE_AGAIN);
    ask_is(&m, "GET", "http://127.0.0.1:7/latest/meta-data/spot/instance-action",
           "x-aws-ec2-metadata-token", "AQAE==");
    assert_int_equal(take(&m, 404, ""), NOTICE_AGAIN);
    ask_is(&m, "GET", "http://127.0.0.1:7/latest/meta-data/events/recommendations/rebalance",
           "x-aws-ec2-metadata-token", "AQAE==");
    assert_int_equal(take(&m, 404, ""), NOTICE_NOTHING);
    ask_is(&m, "GET", "http://127.0.0.1:7/latest/meta-data/spot/instance-action",
           "x-aws-ec2-metadata-token", "AQAE==");
    assert_int_equal(take(&m, 401, ""), NOTICE_AGAIN);
    ask_is(&m, "PUT", token_url, ttl, "21600");
}

/* A recommendation has no end; what is none says nothing. The next round asks for the action first again. */
static void a_recommendation_is_a_risk(void **state)
{
    (void)state;
    static const struct {
        int status;
        const char *body;
        enum notice_found found;
    } rows[] = {
        { 200, "{\"noticeTime\": \"2026-03-01T11:59:58Z\"}", NOTICE_AT_RISK },
        { 200, "{\"noticeTime\": 7", NOTICE_NOTHING },
        { 200, "", NOTICE_NOTHING },
        { 500, "{\"noticeTime\": \"2026-03-01T11:59:58Z\"}", NOTICE_NOTHING },
        { 0, "", NOTICE_NOTHING },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct metadata m = { .source = NOTICE_EC2, .token = "t" };
        int64_t left_us = UNKNOWN;
        char why[NOTICE_WHY_BYTES] = "";
        assert_int_equal(take(&m, 404, ""), NOTICE_AGAIN);
        enum notice_found found =
            metadata_take(&m, rows[i].status, str_from(rows[i].body), NOW, &left_us, why);
        if (found != rows[i].found || (found == NOTICE_AT_RISK) != (why[0] != 0))
            fail_msg("row %zu: found %d, why '%s'", i, (int)found, why);
        ask_is(&m, "GET", "http://169.254.169.254/latest/meta-data/spot/instance-action",
               "x-aws-ec2-metadata-token", "t");
    }
}

static void others_have_a_header(void **state)
{
    (void)state;
    const struct metadata gce = { .source = NOTICE_GCE }, azure = { .source = NOTICE_AZURE };
    ask_is(&gce, "GET", "http://metadata.google.internal/computeMetadata/v1/instance/preempted",
           "metadata-flavor", "Google");
    ask_is(&azure, "GET", "http://169.254.169.254/metadata/scheduledevents?api-version=2020-07-01",
           "metadata", "true");
    char base[METADATA_URL_BYTES];
    memset(base, 'a', sizeof base);
    const struct metadata too_long = { .source = NOTICE_GCE, .base = str_of(base, sizeof base) };
    struct metadata_request q;
    assert_int_equal(metadata_ask(&too_long, &q), -E2BIG);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(replies_are_understood),
        cmocka_unit_test(a_session_of_ec2_has_a_token),
        cmocka_unit_test(a_recommendation_is_a_risk),
        cmocka_unit_test(others_have_a_header),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
