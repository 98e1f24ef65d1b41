/* t_kube_watch_faults.c - tests watches and lists against an API server that fails as scripted: everything that breaks
 * a watch. */
#include "base/core/bits.h"
#include "base/io/kube/kube_list.h"
#include "tests/proc/kube/kube_watched.h"

#include <stdio.h>

static struct kube_server server;

static void script(const char *body)
{
    kube_rig_post(&server, "/script", body);
}

static void a_stream_that_is_cut_goes_on_where_it_was(void **state)
{
    (void)state;
    struct kube_world w = kube_world_fresh(&server), other;
    struct kube_watched s = { 0 };
    char expected[1024] = "= ";
    size_t len = 2;
    script("{\"verb\":\"watch\",\"fault\":\"cut\",\"ms\":60,\"count\":30}");
    other = kube_world_open(&server, (struct kube_client_config){ 0 });
    kube_watched_start(&w, &s, (struct kube_watch_request){ 0 });
    for (int i = 0; i < 40;
         i++) { /* changes at all moments of a stream's life, and between streams */
        char name[16];
        snprintf(name, sizeof name, "m-%02d", i);
        kube_make_map(&other, name, "1");
        len += (size_t)snprintf(expected + len, sizeof expected - len, "+%s ", name);
        for (int turn = 0; turn < 5; turn++)
            loop_turn(w.loop, 3000);
        if (i == 0)
            KUBE_UNTIL(&w, s.events == 2); /* told by the list, or by the stream behind it */
    }
    KUBE_UNTIL(&w, s.events == 41);
    if (s.log.data[0] == '+') memcpy(expected, "+m-00 = ", 8);
    assert_string_equal(s.log.data, expected); /* each once, in order */
    KUBE_UNTIL(&w, kube_watched_state(&s).watches >= 5);
    assert_int_equal(kube_watched_state(&s).lists, 1);
    assert_int_equal(kube_watched_state(&s).expired, 0);
    kube_watched_end(&s);
    kube_world_close(&other);
    kube_world_close(&w);
}

static void a_version_that_is_too_old_leads_to_one_list(void **state)
{
    (void)state;
    static const char *const faults[] = {
        "{\"verb\":\"watch\",\"fault\":\"expired\"}",             /* an ERROR frame */
        "{\"verb\":\"watch\",\"fault\":\"status\",\"code\":410}", /* the HTTP status */
        "{\"verb\":\"watch\",\"fault\":\"older\"}",  /* another server, or one that was restored */
        "{\"verb\":\"watch\",\"fault\":\"broken\"}", /* what this frame said is lost */
    };
    for (size_t i = 0; i < COUNT_OF(faults); i++) {
        struct kube_world w = kube_world_fresh(&server);
        struct kube_watched s = { 0 };
        kube_make_map(&w, "a", "1");
        script(faults[i]);
        kube_watched_start(&w, &s, (struct kube_watch_request){ 0 });
        kube_watched_until(&w, &s, "+a = = "); /* listed again, and nothing told twice */
        KUBE_UNTIL(&w, kube_watched_state(&s).connected);
        kube_set_map(&w, "a", "2");
        kube_watched_until(&w, &s, "+a = = ~a ");
        assert_int_equal(kube_watched_state(&s).lists, 2);
        script(faults[0]);
        kube_rig_post(&server, "/restart", "{}");
        kube_watched_until(&w, &s, "+a = = ~a = "); /* what a frame told is told by no list again */
        kube_watched_end(&s);
        kube_world_close(&w);
    }
}

static void a_server_that_always_says_410_is_not_flooded_with_lists(void **state)
{
    (void)state;
    struct kube_world w = kube_world_fresh(&server);
    struct kube_watched s = { 0 };
    script("{\"verb\":\"watch\",\"fault\":\"expired\",\"count\":1000}");
    int64_t lists = kube_rig_seen(&server, "list");
    kube_watched_start(&w, &s, (struct kube_watch_request){ 0 });
    int64_t until_us = clock_mono_us() + 1500000;
    KUBE_UNTIL(&w, clock_mono_us() > until_us);
    /* Back-offs of 20 ms, doubling to half a second: seven to a dozen lists. Without them, hundreds. */
    lists = kube_rig_seen(&server, "list") - lists;
    if (lists < 3 || lists > 20) fail_msg("%d lists", (int)lists);
    assert_true(kube_watched_state(&s).failures > 1);
    script("{\"count\":0}");
    KUBE_UNTIL(&w, kube_watched_state(&s).connected);
    kube_watched_end(&s);
    kube_world_close(&w);
}

static void bookmarks_keep_a_quiet_watch_young(void **state)
{
    (void)state;
    for (int bookmarks = 0; bookmarks < 2; bookmarks++) {
        struct kube_world w = kube_world_fresh(&server);
        struct kube_watched s = { 0 };
        kube_rig_post(&server, "/set", bookmarks ? "{\"bookmark_ms\":20}" : "{\"bookmark_ms\":0}");
        kube_watched_start(&w, &s, (struct kube_watch_request){ 0 });
        kube_watched_until(&w, &s, "= ");
        KUBE_UNTIL(&w, kube_watched_state(&s).connected);
        /* Other kinds change, and the history is compacted. */
        for (int i = 0; i < 3; i++) {
            char body[128];
            snprintf(body, sizeof body, "{\"metadata\":{\"name\":\"pod-%d\"}}", i);
            kube_must(&w, (struct kube_request){ .verb = KUBE_CREATE,
                                                 .resource = &kube_pods,
                                                 .body = str_from(body) });
        }
        char now[24];
        snprintf(now, sizeof now, "%d", (int)kube_rig_seen(&server, "version"));
        if (bookmarks) KUBE_UNTIL(&w, strcmp(kube_watched_state(&s).version, now) == 0);
        kube_rig_post(&server, "/compact", "{}");
        kube_rig_post(&server, "/restart", "{}");
        kube_make_map(&w, "a", "1");
        kube_watched_until(&w, &s, bookmarks ? "= +a " : "= +a = ");
        assert_int_equal(kube_watched_state(&s).lists, bookmarks ? 1 : 2);
        kube_watched_end(&s);
        kube_world_close(&w);
    }
}

static void silence_is_noticed_and_bookmarks_are_no_silence(void **state)
{
    (void)state;
    struct kube_world w = kube_world_fresh(&server);
    struct kube_watched s = { 0 };
    kube_rig_post(&server, "/set", "{\"bookmark_ms\":50}");
    kube_watched_start(&w, &s, (struct kube_watch_request){ .idle_us = 400000 });
    KUBE_UNTIL(&w,
               s.watch && kube_watched_state(&s).bookmarks >= 20); /* a second and more of quiet */
    assert_int_equal(kube_watched_state(&s).watches, 1);
    kube_watched_end(&s);

    /* Accepted and then never a byte: as behind a connection whose other end is gone. */
    script("{\"verb\":\"watch\",\"fault\":\"silent\",\"count\":1}");
    kube_watched_start(&w, &s, (struct kube_watch_request){ .idle_us = 300000 });
    kube_watched_until(&w, &s, "= ");
    kube_make_map(&w, "a", "1"); /* told by the next stream */
    kube_watched_until(&w, &s, "= +a ");
    struct kube_watch_state st = kube_watched_state(&s);
    assert_int_equal(st.silent, 1);
    assert_int_equal(st.lists, 1);
    kube_watched_end(&s);
    kube_world_close(&w);
}

static void a_server_restored_from_an_older_state_is_listed_anew(void **state)
{
    (void)state;
    struct kube_world w = kube_world_fresh(&server);
    struct kube_watched s = { 0 };
    for (int i = 0; i < 5; i++) {
        char name[16];
        snprintf(name, sizeof name, "a-%d", i);
        kube_make_map(&w, name, "1");
    }
    kube_rig_post(&server, "/set", "{\"bookmark_ms\":50}");
    kube_watched_start(&w, &s, (struct kube_watch_request){ .idle_us = 300000 });
    kube_watched_until(&w, &s, "+a-0 +a-1 +a-2 +a-3 +a-4 = ");
    KUBE_UNTIL(&w, kube_watched_state(&s).connected);
    /* Versions start over: ours lies in the server's future, where no event ever is. */
    kube_rig_post(&server, "/restart", "{\"empty\":true}");
    kube_make_map(&w, "b", "1");
    KUBE_UNTIL(&w, kube_watched_state(&s).lists == 2);
    KUBE_UNTIL(&w, kube_watched_state(&s).synced && kube_watched_state(&s).objects == 1);
    assert_int_equal(str_find(buf_view(&s.log), STR("+a-0 +a-1 +a-2 +a-3 +a-4 = +b -")), 0);
    assert_true(str_ends(buf_view(&s.log), STR(" = ")));
    kube_set_map(&w, "b", "2");
    KUBE_UNTIL(&w, str_ends(buf_view(&s.log), STR(" = ~b ")));
    kube_watched_end(&s);
    kube_world_close(&w);
}

static void a_paused_server_costs_a_stream_and_no_list(void **state)
{
    (void)state;
    struct kube_world w = kube_world_fresh(&server);
    struct kube_watched s = { 0 };
    kube_rig_post(&server, "/set", "{\"bookmark_ms\":50}");
    kube_watched_start(&w, &s, (struct kube_watch_request){ .idle_us = 300000 });
    KUBE_UNTIL(&w, s.watch && kube_watched_state(&s).bookmarks >= 1);
    int64_t confirmed_us = kube_watched_state(&s).confirmed_us;
    kube_rig_pause(&server);
    KUBE_UNTIL(&w, !kube_watched_state(&s).connected);
    assert_true(kube_watched_state(&s).synced); /* the last good state stays in use, with its age */
    struct kube_watch_state st = kube_watched_state(&s);
    assert_true(st.confirmed_us >= confirmed_us && loop_now_us(w.loop) - st.confirmed_us >= 300000);
    assert_true(st.problem[0] != 0);
    kube_rig_resume(&server);
    KUBE_UNTIL(&w, kube_watched_state(&s).connected);
    kube_make_map(&w, "a", "1");
    kube_watched_until(&w, &s, "= +a ");
    assert_int_equal(kube_watched_state(&s).lists, 1);
    kube_watched_end(&s);
    kube_world_close(&w);
}

static void a_watch_gets_new_credentials(void **state)
{
    (void)state;
    struct kube_world w = kube_world_fresh(&server);
    struct kube_watched s = { 0 };
    kube_watched_start(&w, &s, (struct kube_watch_request){ 0 });
    kube_watched_until(&w, &s, "= ");
    KUBE_UNTIL(&w, kube_watched_state(&s).connected);
    int64_t refused = kube_rig_seen(&server, "refused");
    kube_rig_token(&server, "second-token\n");
    kube_rig_post(&server, "/set", "{\"token\":\"second-token\"}");
    kube_rig_post(&server, "/restart", "{}");
    KUBE_UNTIL(&w, !kube_watched_state(&s).connected);
    KUBE_UNTIL(&w, kube_watched_state(&s).connected);
    assert_int_equal(kube_rig_seen(&server, "refused"),
                     refused + 1); /* it looked at the file at once */
    kube_make_map(&w, "a", "1");
    kube_watched_until(&w, &s, "= +a ");
    kube_rig_token(&server, "first-token\n");
    kube_watched_end(&s);
    kube_world_close(&w);
}

static void a_start_against_a_failing_server_succeeds_in_the_end(void **state)
{
    (void)state;
    struct kube_world w = kube_world_fresh(&server);
    struct kube_watched s = { 0 };
    kube_make_map(&w, "a", "1");
    script("{\"verb\":\"list\",\"fault\":\"garbage\",\"count\":2}");
    script("{\"verb\":\"list\",\"fault\":\"status\",\"code\":403,\"count\":2}");
    script("{\"verb\":\"list\",\"fault\":\"cut\",\"count\":2}");
    script("{\"verb\":\"watch\",\"fault\":\"status\",\"code\":500,\"count\":3}");
    kube_watched_start(&w, &s, (struct kube_watch_request){ 0 });
    KUBE_UNTIL(&w, kube_watched_state(&s).failures == 1);
    assert_false(kube_watched_state(&s).synced);
    assert_true(kube_watched_state(&s).problem[0] != 0);
    kube_watched_until(&w, &s, "+a = ");
    KUBE_UNTIL(&w, kube_watched_state(&s).connected);
    kube_delete_map(&w, "a");
    kube_watched_until(&w, &s, "+a = -a ");
    assert_int_equal(kube_watched_state(&s).lists, 1);
    kube_watched_end(&s);
    kube_world_close(&w);
}

static void a_list_that_changes_between_its_chunks_begins_anew(void **state)
{
    (void)state;
    struct kube_world w = kube_world_fresh(&server);
    struct kube_watched s = { 0 };
    struct err err = { 0 };
    char expected[512] = "";
    for (int i = 0; i < 12; i++) {
        char name[16];
        snprintf(name, sizeof name, "k-%02d", i);
        kube_make_map(&w, name, "1");
        snprintf(expected + strlen(expected), sizeof expected - strlen(expected), "+%s ", name);
    }
    /* The scripted server keeps no old states, so a change makes the next chunk a 410. */
    const struct kube_watch_request req = {
        .resource = &kube_configmaps, .limit = 5, .on_event = kube_watched_event, .arg = &s
    };
    assert_int_equal(kube_watch_start(w.client, &req, &s.watch, &err), 0);
    KUBE_UNTIL(&w, s.events == 5); /* the first chunk is told */
    struct kube_world other = kube_world_open(&server, (struct kube_client_config){ 0 });
    kube_delete_map(&other, "k-00");
    snprintf(expected + strlen(expected), sizeof expected - strlen(expected), "-k-00 = ");
    kube_watched_until(&w, &s, expected);
    kube_watched_end(&s);
    kube_world_close(&other);
    kube_world_close(&w);
}

static void a_watch_that_is_stopped_in_a_list_tells_no_more(void **state)
{
    (void)state;
    struct kube_world w = kube_world_fresh(&server),
                      other = kube_world_open(&server, (struct kube_client_config){ 0 });
    struct kube_watched s = { .stop_at = 4 };
    kube_make_map(&w, "a", "1");
    kube_make_map(&w, "b", "1");
    kube_watched_start(&w, &s, (struct kube_watch_request){ 0 });
    kube_watched_until(&w, &s, "+a +b = ");
    KUBE_UNTIL(&w, kube_watched_state(&s).connected);
    kube_rig_post(&server, "/restart", "{}");
    kube_delete_map(&other, "a");
    kube_delete_map(&other, "b");
    kube_rig_post(&server, "/compact", "{}");
    KUBE_UNTIL(&w, s.events == 4);
    for (int i = 0; i < 20; i++)
        loop_turn(w.loop, 1000);
    assert_int_equal(s.events, 4); /* neither the other deletion nor the end of the list */
    assert_null(s.watch);
    buf_fini(&s.log);
    kube_world_close(&other);
    kube_world_close(&w);
}

struct listed {
    int begins, items, ends, rc;
};

static void on_list_begin(void *arg)
{
    ((struct listed *)arg)->begins++;
}

static void on_list_item(void *arg, struct str object)
{
    (void)object;
    ((struct listed *)arg)->items++;
}

static void on_list_end(void *arg, const struct kube_list_end *end)
{
    struct listed *l = arg;
    l->ends++;
    l->rc = end->rc;
    assert_true(end->rc < 0 || end->count == 11);
}

static void a_list_says_that_it_begins_anew(void **state)
{
    (void)state;
    struct kube_world w = kube_world_fresh(&server),
                      other = kube_world_open(&server, (struct kube_client_config){ 0 });
    struct listed l = { 0 };
    struct kube_list *list = NULL;
    char name[16];
    for (int i = 0; i < 12; i++) {
        snprintf(name, sizeof name, "k-%02d", i);
        kube_make_map(&w, name, "1");
    }
    const struct kube_list_request req = { .resource = &kube_configmaps,
                                           .limit = 5,
                                           .on_begin = on_list_begin,
                                           .on_item = on_list_item,
                                           .on_end = on_list_end,
                                           .arg = &l };
    assert_int_equal(kube_list_start(w.client, &req, &list, NULL), 0);
    KUBE_UNTIL(&w, l.items == 5);
    kube_delete_map(&other, "k-00");
    KUBE_UNTIL(&w, l.ends == 1);
    assert_int_equal(l.rc, 0);
    assert_int_equal(l.begins, 2);
    assert_int_equal(l.items, 16);
    /* A server that never lets a list in chunks end is asked for everything at once. */
    l = (struct listed){ 0 };
    script("{\"verb\":\"list\",\"fault\":\"stale\",\"count\":1000}");
    assert_int_equal(kube_list_start(w.client, &req, &list, NULL), 0);
    KUBE_UNTIL(&w, l.ends == 1);
    assert_int_equal(l.rc, 0);
    assert_int_equal(l.begins, KUBE_LIST_ATTEMPTS + 1);
    kube_world_close(&other);
    kube_world_close(&w);
}

static void more_objects_than_the_bound_are_an_error_that_is_told(void **state)
{
    (void)state;
    struct kube_world w = kube_world_fresh(&server);
    struct kube_watched s = { 0 };
    char name[16];
    for (int i = 0; i < 4; i++) {
        snprintf(name, sizeof name, "o-%d", i);
        kube_make_map(&w, name, "1");
    }
    kube_watched_start(&w, &s, (struct kube_watch_request){ .objects_max = 3 });
    KUBE_UNTIL(&w, kube_watched_state(&s).failures >= 2);
    assert_false(kube_watched_state(&s).synced);
    assert_non_null(strstr(kube_watched_state(&s).problem, "more than 3 configmaps"));
    kube_delete_map(&w, "o-3");
    KUBE_UNTIL(&w, kube_watched_state(&s).synced);
    assert_int_equal(kube_watched_state(&s).objects, 3);
    KUBE_UNTIL(&w, kube_watched_state(&s).connected);
    kube_make_map(&w, "o-5", "1"); /* now by a frame */
    KUBE_UNTIL(&w, strstr(kube_watched_state(&s).problem, "more than 3 configmaps") != NULL);
    kube_delete_map(&w, "o-0");
    KUBE_UNTIL(&w, strstr(s.log.data, "-o-0") && strstr(s.log.data, "+o-5"));
    kube_watched_end(&s);
    kube_world_close(&w);
}

int main(void)
{
    if (!kube_rig_fake(&server, ARGS(NULL))) return RIG_SKIP;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_stream_that_is_cut_goes_on_where_it_was),
        cmocka_unit_test(a_version_that_is_too_old_leads_to_one_list),
        cmocka_unit_test(a_server_that_always_says_410_is_not_flooded_with_lists),
        cmocka_unit_test(bookmarks_keep_a_quiet_watch_young),
        cmocka_unit_test(silence_is_noticed_and_bookmarks_are_no_silence),
        cmocka_unit_test(a_server_restored_from_an_older_state_is_listed_anew),
        cmocka_unit_test(a_paused_server_costs_a_stream_and_no_list),
        cmocka_unit_test(a_watch_gets_new_credentials),
        cmocka_unit_test(a_start_against_a_failing_server_succeeds_in_the_end),
        cmocka_unit_test(a_list_that_changes_between_its_chunks_begins_anew),
        cmocka_unit_test(a_watch_that_is_stopped_in_a_list_tells_no_more),
        cmocka_unit_test(a_list_says_that_it_begins_anew),
        cmocka_unit_test(more_objects_than_the_bound_are_an_error_that_is_told),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    kube_rig_end(&server);
    return rig_end(failed);
}
