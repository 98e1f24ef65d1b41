/* t_kube_api.c - tests request targets, errors, metadata, lists and bodies of the Kubernetes API, and the frames
 * of a watch cut at every byte. */
#include "base/core/bits.h"
#include "base/core/own.h"
#include "base/io/kube/kube_api.h"
#include "base/io/kube/kube_frame.h"
#include "tests/unit/unit.h"

static const struct kube_resource pods = { "", "v1", "pods", false };
static const struct kube_resource nodes = { "", "v1", "nodes", true };
static const struct kube_resource leases = { "coordination.k8s.io", "v1", "leases", false };

/* ---- targets ---- */

static void a_target_addresses_the_resource(void **state)
{
    (void)state;
    static const struct {
        const struct kube_resource *resource;
        const char *ns, *name, *sub;
        struct kube_param params[2];
        const char *expected; /* NULL: refused */
        const char *says;
    } rows[] = {
        { &pods, "a", "b", NULL, { { 0 } }, "/api/v1/namespaces/a/pods/b", "" },
        { &pods, "a", "", NULL, { { 0 } }, "/api/v1/namespaces/a/pods", "" },
        { &pods, "", "", NULL, { { 0 } }, "/api/v1/pods", "" },
        { &pods, "a", "b", "eviction", { { 0 } }, "/api/v1/namespaces/a/pods/b/eviction", "" },
        { &nodes, "", "n.1", NULL, { { 0 } }, "/api/v1/nodes/n.1", "" },
        { &leases,
          "a",
          "b",
          NULL,
          { { 0 } },
          "/apis/coordination.k8s.io/v1/namespaces/a/leases/b",
          "" },
        { &pods,
          "",
          "",
          NULL,
          { { "labelSelector", STR("a in (b,c),!d") }, { "limit", STR("") } },
          "/api/v1/pods?labelSelector=a%20in%20(b,c),!d",
          "" },
        { &pods,
          "",
          "",
          NULL,
          { { "a", STR("&#?/+%") }, { "continue", STR("x==") } },
          "/api/v1/pods?a=%26%23%3F%2F%2B%25&continue=x==",
          "" },
        { &nodes, "", "system:node", NULL, { { 0 } }, "/api/v1/nodes/system%3Anode", "" },
        { &pods, "", "b", NULL, { { 0 } }, NULL, "namespace is missing" },
        { &nodes, "a", "b", NULL, { { 0 } }, NULL, "have no namespace" },
        { &pods, "a", "../secrets/x", NULL, { { 0 } }, NULL, "is no object name" },
        { &pods, "a", "..", NULL, { { 0 } }, NULL, "is no object name" },
        { &pods, "a", "b%2fc", NULL, { { 0 } }, NULL, "is no object name" },
        { &pods, "a", "b c", NULL, { { 0 } }, NULL, "is no object name" },
        { &pods, "a?", "b", NULL, { { 0 } }, NULL, "is no namespace" },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        CLEANUP(buf_fini) struct buf out = { 0 };
        struct err err = { 0 };
        int rc = kube_target(rows[i].resource, str_from(rows[i].ns), str_from(rows[i].name),
                             rows[i].sub, rows[i].params, 2, &out, &err);
        if (rows[i].expected && (rc < 0 || strcmp(out.data, rows[i].expected) != 0))
            fail_msg("row %zu: %d %s %s", i, rc, out.data, err.text);
        if (!rows[i].expected && (rc != -EINVAL || !strstr(err.text, rows[i].says)))
            fail_msg("row %zu: %d %s", i, rc, err.text);
    }
}

/* ---- errors ---- */

#define STATUS "\"kind\":\"Status\",\"apiVersion\":\"v1\",\"metadata\":{},\"status\":\"Failure\","

static void a_status_says_what_went_wrong(void **state)
{
    (void)state;
    static const struct {
        const char *json;
        int rc;
        enum kube_reason reason;
        int64_t retry_after_s;
        const char *cause, *message;
    } rows[] = {
        { "{" STATUS "\"message\":\"pods \\\"x\\\" not found\",\"reason\":\"NotFound\","
          "\"details\":{\"name\":\"x\",\"kind\":\"pods\"},\"code\":404}",
          -ENOENT, KUBE_NOT_FOUND, 0, "", "pods \"x\" not found" },
        { "{" STATUS "\"reason\":\"AlreadyExists\",\"code\":409}", -EEXIST, KUBE_ALREADY_EXISTS, 0,
          "", "" },
        { "{" STATUS "\"reason\":\"Conflict\",\"code\":409}", -ESTALE, KUBE_CONFLICT, 0, "", "" },
        { "{" STATUS "\"reason\":\"Expired\",\"code\":410}", -ETIME, KUBE_EXPIRED, 0, "", "" },
        { "{" STATUS "\"reason\":\"Gone\",\"code\":410}", -ETIME, KUBE_GONE, 0, "", "" },
        { "{" STATUS
          "\"reason\":\"TooManyRequests\",\"code\":429,\"details\":{\"causes\":[{\"reason\":"
          "\"DisruptionBudget\",\"message\":\"m\"},{\"reason\":\"Other\"}],\"retryAfterSeconds\":7}"
          "}",
          -EBUSY, KUBE_TOO_MANY_REQUESTS, 7, "DisruptionBudget", "" },
        { "{" STATUS "\"reason\":\"Invalid\",\"code\":422,\"details\":null}", -EINVAL, KUBE_INVALID,
          0, "", "" },
        { "{" STATUS "\"reason\":\"Forbidden\",\"code\":403}", -EPERM, KUBE_FORBIDDEN, 0, "", "" },
        /* A reason of a later release: the code decides. */
        { "{" STATUS "\"reason\":\"Novel\",\"code\":404}", -ENOENT, KUBE_NONE, 0, "", "" },
        { "{" STATUS "\"code\":500}", -EREMOTEIO, KUBE_NONE, 0, "", "" },
        { "{" STATUS "\"code\":418}", -EINVAL, KUBE_NONE, 0, "", "" },
        { "{" STATUS "\"code\":429,\"details\":{\"retryAfterSeconds\":-5}}", -EBUSY, KUBE_NONE, 0,
          "", "" },
        { "{" STATUS "\"code\":429,\"details\":{\"retryAfterSeconds\":99999999}}", -EBUSY,
          KUBE_NONE, KUBE_RETRY_AFTER_S_MAX, "", "" },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct kube_status s = { 0 };
        struct err err = { 0 };
        if (kube_status_read(str_from(rows[i].json), &s, &err) < 0)
            fail_msg("row %zu: %s", i, err.text);
        if (s.reason != rows[i].reason || kube_status_errno(&s) != rows[i].rc ||
            s.retry_after_s != rows[i].retry_after_s || strcmp(s.cause, rows[i].cause) != 0 ||
            strcmp(s.message, rows[i].message) != 0)
            fail_msg("row %zu: %d %d %ld %s %s", i, s.reason, kube_status_errno(&s),
                     (long)s.retry_after_s, s.cause, s.message);
    }
}

static void what_is_no_status_is_refused(void **state)
{
    (void)state;
    static const char *const rows[] = {
        "",
        "<html>502 Bad Gateway</html>",
        "[]",
        "{}",
        "{\"kind\":\"Pod\"}",
        "{\"kind\":\"Status\"",
        "{\"kind\":\"Status\"} x",
        "{\"kind\":\"Status\",\"code\":\"404\"}",
        "{\"kind\":\"Status\",\"details\":[]}",
        "{\"kind\":\"Status\",\"details\":{\"causes\":{}}}",
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct kube_status s = { 0 };
        struct err err = { 0 };
        if (kube_status_read(str_from(rows[i]), &s, &err) != -EINVAL || err.text[0] == 0)
            fail_msg("row %zu", i);
    }
    struct kube_status s;
    kube_status_of_code(503, &s);
    assert_int_equal(s.reason, KUBE_SERVICE_UNAVAILABLE);
    kube_status_of_code(410, &s);
    assert_int_equal(kube_status_errno(&s), -ETIME);
    kube_status_of_code(409, &s);
    assert_int_equal(kube_status_errno(&s), -ESTALE);
}

static void a_long_message_is_cut_between_characters(void **state)
{
    (void)state;
    CLEANUP(buf_fini) struct buf json = { 0 };
    struct kube_status s = { 0 };
    buf_text(&json, "{" STATUS "\"message\":\"a");
    for (int i = 0; i < 1000; i++)
        buf_text(&json, "\u00e9");
    buf_text(&json, "\"}");
    assert_int_equal(kube_status_read(buf_view(&json), &s, NULL), 0);
    assert_int_equal(strlen(s.message), KUBE_MESSAGE_BYTES - 1); /* 1 + 2 * 199 */
    assert_true(str_utf8_valid(str_from(s.message)));
}

/* ---- objects and lists ---- */

static void metadata_is_read_wherever_it_stands(void **state)
{
    (void)state;
    static const struct {
        const char *json, *name, *version;
        int rc;
        bool deleting;
    } rows[] = {
        { "{\"metadata\":{\"name\":\"a\",\"namespace\":\"n\",\"uid\":\"u\",\"resourceVersion\":"
          "\"7\","
          "\"generation\":3,\"labels\":{\"name\":\"x\"}},\"spec\":{\"metadata\":{\"name\":\"no\"}}"
          "}",
          "a", "7", 0, false },
        { "{\"spec\":{},\"metadata\":{\"resourceVersion\":\"9\",\"deletionTimestamp\":\"t\"}}", "",
          "9", 0, true },
        { "{\"metadata\":{\"deletionTimestamp\":null,\"name\":null}}", "", "", 0, false },
        { "{\"metadata\":{\"name\":\"a\\u0000b\"}}", "", "", -EINVAL, false },
        { "{\"metadata\":{\"name\":7}}", "", "", -EINVAL, false },
        { "{\"metadata\":[]}", "", "", -EINVAL, false },
        { "{\"metadata\":{},\"metadata\":{}}", "", "", -EINVAL, false },
        { "{\"spec\":{}}", "", "", -EINVAL, false },
        { "{\"metadata\":{}} {}", "", "", -EINVAL, false },
        { "[]", "", "", -EINVAL, false },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        struct kube_meta m = { 0 };
        struct err err = { 0 };
        int rc = kube_meta_read(str_from(rows[i].json), &m, &err);
        if (rc != rows[i].rc || strcmp(m.name, rows[i].name) ||
            strcmp(m.version, rows[i].version) || m.deleting != rows[i].deleting)
            fail_msg("row %zu: %d %s", i, rc, err.text);
    }
    CLEANUP(buf_fini) struct buf json = { 0 };
    struct kube_meta m;
    buf_printf(&json, "{\"metadata\":{\"name\":\"%0254d\"}}", 1);
    assert_int_equal(kube_meta_read(buf_view(&json), &m, NULL), -EINVAL); /* one too long */
}

static void gather(void *arg, struct str object)
{
    buf_printf(arg, STR_FMT ";", STR_ARG(object));
}

static void a_list_gives_its_objects_and_its_version(void **state)
{
    (void)state;
    static const struct {
        const char *json, *items, *version, *more;
        int rc;
    } rows[] = {
        { "{\"kind\":\"PodList\",\"metadata\":{\"resourceVersion\":\"5\",\"continue\":"
          "\"to\\u006ben\"},"
          "\"items\":[{\"a\":1}, {\"b\":[2]}]}",
          "{\"a\":1};{\"b\":[2]};", "5", "token", 0 },
        { "{\"items\":[{\"a\":1}],\"metadata\":{\"resourceVersion\":\"5\"}}", "{\"a\":1};", "5", "",
          0 },
        { "{\"items\":[],\"metadata\":{\"resourceVersion\":\"5\",\"continue\":\"\"}}", "", "5", "",
          0 },
        { "{\"items\":null,\"metadata\":{\"resourceVersion\":\"5\"}}", "", "5", "", 0 },
        { "{\"items\":[{}],\"metadata\":{}}", "", "", "", -EINVAL },
        { "{\"items\":[]}", "", "", "", -EINVAL },
        { "{\"metadata\":{\"resourceVersion\":\"5\"}}", "", "", "", -EINVAL },
        { "{\"items\":{},\"metadata\":{\"resourceVersion\":\"5\"}}", "", "5", "", -EINVAL },
        /* Nothing is handed out of a list that is cut. */
        { "{\"metadata\":{\"resourceVersion\":\"5\"},\"items\":[{\"a\":1},", "", "", "", -EINVAL },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        CLEANUP(buf_fini) struct buf items = { 0 }, more = { 0 };
        char version[KUBE_VERSION_BYTES] = "";
        struct err err = { 0 };
        int rc = kube_list_read(str_from(rows[i].json), gather, &items, version, &more, &err);
        if (rc != rows[i].rc || strcmp(version, rows[i].version) != 0 ||
            !str_eq(buf_view(&items), str_from(rows[i].items)) ||
            (rc == 0 && !str_eq(buf_view(&more), str_from(rows[i].more))))
            fail_msg("row %zu: %d %s %s", i, rc, version, err.text);
    }
}

static void a_scale_counts_what_is_left_out_as_zero(void **state)
{
    (void)state;
    int64_t wanted = -1, there = -1;
    assert_int_equal(kube_scale_read(STR("{\"spec\":{\"replicas\":4},\"status\":{\"replicas\":3,"
                                         "\"selector\":\"a=b\"}}"),
                                     &wanted, &there, NULL),
                     0);
    assert_int_equal(wanted, 4);
    assert_int_equal(there, 3);
    assert_int_equal(kube_scale_read(STR("{\"spec\":{},\"status\":{}}"), &wanted, &there, NULL), 0);
    assert_int_equal(wanted + there, 0);
    assert_int_equal(kube_scale_read(STR("{\"spec\":{\"replicas\":\"4\"}}"), &wanted, &there, NULL),
                     -EINVAL);
}

static void bodies_say_what_was_asked(void **state)
{
    (void)state;
    static const struct {
        struct kube_delete del;
        const char *expected;
    } rows[] = {
        { { .at_once = false }, "{\"apiVersion\":\"v1\",\"kind\":\"DeleteOptions\"}" },
        { { .uid = STR("u\"1"),
            .version = STR("7"),
            .propagation = KUBE_FOREGROUND,
            .at_once = true },
          "{\"apiVersion\":\"v1\",\"kind\":\"DeleteOptions\",\"preconditions\":{\"uid\":\"u\\\"1\","
          "\"resourceVersion\":\"7\"},\"propagationPolicy\":\"Foreground\",\"gracePeriodSeconds\":"
          "0}" },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        CLEANUP(buf_fini) struct buf out = { 0 };
        kube_put_delete(&out, &rows[i].del);
        assert_string_equal(out.data, rows[i].expected);
    }
    CLEANUP(buf_fini) struct buf out = { 0 };
    kube_put_eviction(&out, STR("n"), STR("p"), &rows[1].del);
    assert_string_equal(
        out.data,
        "{\"apiVersion\":\"policy/v1\",\"kind\":\"Eviction\",\"metadata\":{\"name\":\"p\","
        "\"namespace\":\"n\"},\"deleteOptions\":{\"preconditions\":{\"uid\":\"u\\\"1\","
        "\"resourceVersion\":\"7\"},\"propagationPolicy\":\"Foreground\","
        "\"gracePeriodSeconds\":0}}");
}

/* ---- frames ---- */

struct frames_seen {
    struct buf text;
    uint32_t count, stop_at;
};

static bool on_frame(void *arg, const struct kube_frame *frame)
{
    struct frames_seen *s = arg;
    buf_printf(&s->text, "%d" STR_FMT "\n", frame->type, STR_ARG(frame->object));
    return ++s->count != s->stop_at;
}

static const char stream[] =
    "{\"type\":\"ADDED\",\"object\":{\"a\":\"\\n}{\"}}\n"
    "{\"object\":{\"b\":[1,{}]},\"type\":\"MODIFIED\"}\r\n"
    "\n"
    "{\"type\":\"BOOKMARK\",\"object\":{\"metadata\":{\"resourceVersion\":\"9\"}}}\n"
    "{\"type\":\"DELETED\",\"object\":{},\"more\":null}\n"
    "{\"type\":\"ERROR\",\"object\":{\"kind\":\"Status\",\"code\":410}}\n";
static const char told[] = "0{\"a\":\"\\n}{\"}\n"
                           "1{\"b\":[1,{}]}\n"
                           "3{\"metadata\":{\"resourceVersion\":\"9\"}}\n"
                           "2{}\n"
                           "4{\"kind\":\"Status\",\"code\":410}\n";

static void frames_are_the_same_however_the_stream_is_cut(void **state)
{
    (void)state;
    size_t len = sizeof stream - 1;
    for (size_t first = 0; first <= len; first++) {
        for (size_t second = first; second <= len; second++) {
            CLEANUP(kube_frames_fini) struct kube_frames f = { 0 };
            struct frames_seen s = { 0 };
            const size_t cuts[] = { 0, first, second, len };
            for (int i = 0; i < 3; i++)
                assert_int_equal(kube_frames_feed(&f,
                                                  str_of(stream + cuts[i], cuts[i + 1] - cuts[i]),
                                                  on_frame, &s, NULL),
                                 0);
            if (s.count != 5 || strcmp(s.text.data, told) != 0)
                fail_msg("cut at %zu and %zu: %s", first, second, s.text.data);
            buf_fini(&s.text);
        }
    }
    CLEANUP(kube_frames_fini) struct kube_frames f = { 0 };
    struct frames_seen s = { 0 };
    for (size_t i = 0; i < len; i++)
        assert_int_equal(kube_frames_feed(&f, str_of(stream + i, 1), on_frame, &s, NULL), 0);
    assert_string_equal(s.text.data, told);
    buf_fini(&s.text);
}

static void a_frame_has_a_bound_and_a_form(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        size_t max;
        int rc;
        const char *says;
    } rows[] = {
        { "{\"type\":\"ADDED\",\"object\":{}}\n", 29, 0, "" },
        { "{\"type\":\"ADDED\",\"object\":{}}\n", 27, -EMSGSIZE, "longer than 27" },
        { "{\"type\":\"ADDED\",\"object\":{", 20, -EMSGSIZE,
          "longer than 20" }, /* no end came yet */
        { "{\"type\":\"NOVEL\",\"object\":{}}\n", 0, -EINVAL, "NOVEL" },
        { "{\"type\":\"ADDED\"}\n", 0, -EINVAL, "no object" },
        { "{\"type\":\"ADDED\",\"object\":null}\n", 0, -EINVAL, "no object" },
        { "{\"type\":\"ADDED\",\"object\":{},\"object\":{}}\n", 0, -EINVAL, "frame" },
        { "{\"type\":\"ADDED\",\"object\":{}} {}\n", 0, -EINVAL, "frame" },
        { "{\"type\":\"ADDED\",\"obj\n", 0, -EINVAL, "frame" },
        { "no JSON\n", 0, -EINVAL, "frame" },
        { "[]\n", 0, -EINVAL, "frame" },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        CLEANUP(kube_frames_fini) struct kube_frames f = { .bytes_max = rows[i].max };
        struct frames_seen s = { 0 };
        struct err err = { 0 };
        int rc = kube_frames_feed(&f, str_from(rows[i].text), on_frame, &s, &err);
        if (rc != rows[i].rc || !strstr(err.text, rows[i].says))
            fail_msg("row %zu: %d %s", i, rc, err.text);
        buf_fini(&s.text);
    }
}

static void the_bound_is_of_the_whole_frame(void **state)
{
    (void)state;
    CLEANUP(kube_frames_fini) struct kube_frames f = { .bytes_max = 30 };
    struct frames_seen s = { 0 };
    assert_int_equal(kube_frames_feed(&f, STR("{\"type\":\"ADDED\",\"obj"), on_frame, &s, NULL), 0);
    assert_int_equal(kube_frames_feed(&f, STR("ect\":{\"a\":1}}"), on_frame, &s, NULL), -EMSGSIZE);
    buf_fini(&s.text);
}

static void a_reader_that_wants_no_more_gets_no_more(void **state)
{
    (void)state;
    CLEANUP(kube_frames_fini) struct kube_frames f = { 0 };
    struct frames_seen s = { .stop_at = 2 };
    assert_int_equal(kube_frames_feed(&f, str_from(stream), on_frame, &s, NULL), 0);
    assert_int_equal(s.count, 2);
    buf_fini(&s.text);
}

/* A text that can be a label is one; others keep what is legal of them, and their digest keeps them apart. */
static void any_text_has_a_label_of_its_own(void **state)
{
    (void)state;
    static const struct {
        const char *text, *label; /* digests as sha256sum prints them */
    } rows[] = {
        { "chat", "chat" },
        { "Qwen2.5-7B_q4", "Qwen2.5-7B_q4" },
        { "0", "0" },
        { "org/chat", "org-chat-e797e2e5" },
        { "-chat-", "chat-edcda374" },
        { "chat \"7b\"", "chat--7b-a8ae04a3" },
        { "\xc3\xa4hre", "hre-6ae8e509" },
        { "m\xc3\xbchle", "m-hle-a8a42493" },
        { "/", "8a5edab2" },
        { "", "e3b0c442" },
        { "abcdefghijklmnopqrstuvwxyz0123456789abcdefghijklmnopqrstuvwxyz0",
          "abcdefghijklmnopqrstuvwxyz0123456789abcdefghijklmnopqrstuvwxyz0" },
        { "abcdefghijklmnopqrstuvwxyz0123456789abcdefghijklmnopqrstuvwxyz01",
          "abcdefghijklmnopqrstuvwxyz0123456789abcdefghijklmnopqr-9811e1dd" },
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        char label[KUBE_LABEL_BYTES];
        kube_label(str_from(rows[i].text), label);
        if (strcmp(label, rows[i].label) != 0) fail_msg("%s: %s", rows[i].text, label);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_target_addresses_the_resource),
        cmocka_unit_test(a_status_says_what_went_wrong),
        cmocka_unit_test(what_is_no_status_is_refused),
        cmocka_unit_test(a_long_message_is_cut_between_characters),
        cmocka_unit_test(metadata_is_read_wherever_it_stands),
        cmocka_unit_test(a_list_gives_its_objects_and_its_version),
        cmocka_unit_test(a_scale_counts_what_is_left_out_as_zero),
        cmocka_unit_test(bodies_say_what_was_asked),
        cmocka_unit_test(any_text_has_a_label_of_its_own),
        cmocka_unit_test(frames_are_the_same_however_the_stream_is_cut),
        cmocka_unit_test(a_frame_has_a_bound_and_a_form),
        cmocka_unit_test(the_bound_is_of_the_whole_frame),
        cmocka_unit_test(a_reader_that_wants_no_more_gets_no_more),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
