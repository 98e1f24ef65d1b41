/* t_kube_cloud.c - tests the controller's Kubernetes driver against API servers, scripted and real: one Pod an
 * intent whatever is lost, errors as classes of offers, listings from the watch.
 *
 * tests/kube/t_driver tests the same within a controller, on a cluster with nodes. */
#include "base/core/bits.h"
#include "base/core/own.h"
#include "base/io/file.h"
#include "controller/cloud/kube/kube_cloud.h"
#include "tests/proc/kube/kube_rig.h"

#include <stdio.h>
#include <string.h>

static struct kube_server server;

struct ground {
    struct kube_world w; /* a second client, which looks and interferes */
    struct arena arena;
    struct kube_section section;
    struct kube_offer_section offer;
    struct kube_settings settings;
    struct cloud cloud;
    struct cloud_event event;
    uint64_t id;
};

static struct ground *ground_open(int64_t wait_us)
{
    struct ground *g = calloc(1, sizeof *g);
    struct err err = { 0 };
    must(g);
    g->w = kube_world_open(&server, (struct kube_client_config){ 0 });
    arena_init(&g->arena, 8 << 20);
    g->offer = (struct kube_offer_section){ .name = STR("gpu"), .price_h = 1 };
    g->section = (struct kube_section){ .kubeconfig = str_from(server.kubeconfig),
                                        .namespace = STR(KUBE_RIG_NS),
                                        .fleet = STR("test"),
                                        .image = STR("image:1"),
                                        .wait_us = wait_us,
                                        .image_wait_us = wait_us,
                                        .watch_nodes = true,
                                        .poll_us = 100000,
                                        .calls_per_s = 1000,
                                        .offers = { &g->offer, 1 } };
    assert_int_equal(kube_settings_make(&g->section, &g->arena, &g->settings, &err), 0);
    static const char *const environ[] = { NULL };
    if (kube_cloud_open(g->w.loop, &g->settings, 5000000, environ, 1, &g->cloud, &err) < 0)
        fail_msg("%s", err.text);
    return g;
}

static void ground_close(struct ground *g)
{
    cloud_close(&g->cloud);
    kube_world_close(&g->w);
    arena_fini(&g->arena);
    free(g);
}

static int64_t now(const struct ground *g)
{
    return loop_now_us(g->w.loop) + 1000000000; /* fleet time is not the loop's */
}

static bool has_event(struct ground *g)
{
    return g->cloud.driver->next(g->cloud.ctx, now(g), &g->event);
}

/* Makes a call and waits for its event. */
static const struct cloud_event *call(struct ground *g, struct cloud_call what)
{
    struct err err = { 0 };
    what.id = ++g->id;
    KUBE_UNTIL(&g->w, g->cloud.driver->submit(g->cloud.ctx, &what, now(g), &err) == 0);
    KUBE_UNTIL(&g->w, has_event(g));
    assert_int_equal(g->event.id, what.id);
    return &g->event;
}

static const struct cloud_event *create(struct ground *g, const char *intent)
{
    static const struct str args[] = { { "muster", 6 } };
    const struct launch_spec spec = { .instance = str_from(intent),
                                      .service = STR("chat"),
                                      .pool = STR("pool"),
                                      .offer = STR("gpu"),
                                      .controller_host = STR("controller"),
                                      .controller_port = 8090,
                                      .engine_host = STR("0.0.0.0"),
                                      .engine_args = args,
                                      .engine_arg_count = 1 };
    const struct cloud_request request = { .intent = intent,
                                           .offer = &g->settings.sold[0].offer,
                                           .spec = &spec,
                                           .key = STR("key-of-the-instance") };
    return call(g, (struct cloud_call){ .op = CLOUD_CREATE, .create = request });
}

static const struct cloud_event *end(struct ground *g, const char *intent)
{
    return call(g, (struct cloud_call){ .op = CLOUD_REMOVE, .handle = "", .intent = intent });
}

/* Lists until the view is in step. */
static const struct cloud_event *list(struct ground *g)
{
    KUBE_UNTIL(&g->w, call(g, (struct cloud_call){ .op = CLOUD_LIST })->rc != -EAGAIN);
    return &g->event;
}

static const struct listed *listed(struct ground *g, const char *intent)
{
    const struct cloud_event *e = list(g);
    for (uint32_t i = 0; e->rc == 0 && i < e->count; i++)
        if (strcmp(e->item[i].intent, intent) == 0) return &e->item[i];
    return NULL;
}

static int count_of(struct ground *g, const struct kube_resource *resource)
{
    struct kube_seen s = { 0 };
    int found;
    kube_do(&g->w, &s,
            (struct kube_request){ .verb = KUBE_LIST,
                                   .resource = resource,
                                   .ns = STR(KUBE_RIG_NS),
                                   .label_selector = STR("muster.dev/fleet=test") });
    assert_int_equal(s.reply.rc, 0);
    found = -1; /* the list's own */
    for (const char *at = s.body.data; s.body.len > 0 && (at = strstr(at, "\"resourceVersion\":"));
         at++)
        found++;
    kube_seen_fini(&s);
    return found;
}

static const struct kube_resource secrets = { "", "v1", "secrets", false };

static void script(const char *body)
{
    if (!server.real) kube_rig_post(&server, "/script", body);
}

/* ---- what must hold on any server ---- */

static void an_intent_is_one_pod(void **state)
{
    (void)state;
    struct ground *g = ground_open(60000000);
    assert_int_equal(create(g, "i-000000000001")->rc, 0);
    assert_string_equal(g->event.made.handle, "i-000000000001");
    assert_int_equal(create(g, "i-000000000001")->rc, 0); /* again: the same */
    assert_int_equal(create(g, "i-000000000002")->rc, 0);
    assert_int_equal(count_of(g, &kube_pods), 2);
    const struct listed *l = listed(g, "i-000000000001");
    assert_non_null(l);
    assert_string_equal(l->service, "chat");
    assert_string_equal(l->offer, "gpu");
    assert_false(l->unreadable);
    assert_int_equal(l->stuck, OFFER_OK);
    assert_int_equal(list(g)->count, 2);
    assert_int_equal(end(g, "i-000000000001")->rc, 0);
    assert_int_equal(end(g, "i-000000000001")->rc, 0); /* gone, or going: both are removed */
    assert_int_equal(end(g, "i-00000000000f")->rc, 0); /* it never was */
    assert_int_equal(end(g, "i-000000000002")->rc, 0);
    ground_close(g);
}

static void another_driver_sees_the_same(void **state)
{
    (void)state;
    struct ground *g = ground_open(60000000);
    assert_int_equal(create(g, "i-000000000011")->rc, 0);
    cloud_close(&g->cloud); /* the controller dies */
    struct err err = { 0 };
    static const char *const environ[] = { NULL };
    assert_int_equal(kube_cloud_open(g->w.loop, &g->settings, 5000000, environ, 2, &g->cloud, &err),
                     0);
    KUBE_UNTIL(&g->w, listed(g, "i-000000000011"));
    assert_int_equal(create(g, "i-000000000011")->rc, 0);
    assert_true(count_of(g, &kube_pods) >= 1);
    assert_int_equal(end(g, "i-000000000011")->rc, 0);
    ground_close(g);
}

static void a_strangers_pod_is_not_taken(void **state)
{
    (void)state;
    struct ground *g = ground_open(60000000);
    kube_must(&g->w, (struct kube_request){
                         .verb = KUBE_CREATE,
                         .resource = &kube_pods,
                         .ns = STR(KUBE_RIG_NS),
                         .body = STR("{\"metadata\":{\"name\":\"i-000000000021\"},\"spec\":{"
                                     "\"containers\":[{\"name\":\"c\",\"image\":\"i\"}]}}") });
    assert_int_equal(create(g, "i-000000000021")->rc, -EEXIST);
    assert_int_equal(g->event.class, OFFER_INVALID);
    assert_non_null(strstr(g->event.err.text, "not of this fleet"));
    assert_null(listed(g, "i-000000000021"));
    ground_close(g);
}

static void a_deleted_pod_leaves(void **state)
{
    (void)state;
    struct ground *g = ground_open(60000000);
    struct kube_seen s = { 0 };
    assert_int_equal(create(g, "i-000000000031")->rc, 0);
    KUBE_UNTIL(&g->w, listed(g, "i-000000000031"));
    kube_do(&g->w, &s,
            (struct kube_request){ .verb = KUBE_DELETE,
                                   .resource = &kube_pods,
                                   .ns = STR(KUBE_RIG_NS),
                                   .name = STR("i-000000000031"),
                                   .del = { .grace_s = 0 } });
    KUBE_UNTIL(&g->w, g->cloud.driver->has_news(g->cloud.ctx)); /* told at once, and once */
    assert_false(g->cloud.driver->has_news(g->cloud.ctx));
    KUBE_UNTIL(&g->w, !listed(g, "i-000000000031") || listed(g, "i-000000000031")->leaves_us > 0);
    kube_seen_fini(&s);
    ground_close(g);
}

/* ---- what fails as scripted ---- */

static void a_lost_reply_makes_no_second_pod(void **state)
{
    (void)state;
    static const char *const resources[] = { "pods", "secrets" };
    for (size_t i = 0; i < COUNT_OF(resources); i++) {
        struct ground *g = ground_open(60000000);
        char text[128], intent[16];
        snprintf(text, sizeof text,
                 "{\"verb\":\"create\",\"fault\":\"lost\",\"count\":1,\"resource\":\"%s\"}",
                 resources[i]);
        snprintf(intent, sizeof intent, "i-00000000004%zu", i);
        script(text);
        assert_true(create(g, intent)->rc < 0);
        assert_int_equal(g->event.class, OFFER_TRANSIENT); /* it may have been made */
        KUBE_UNTIL(&g->w, listed(g, intent));
        assert_int_equal(create(g, intent)->rc, 0);
        assert_int_equal(count_of(g, &kube_pods), (int)i + 1);
        assert_int_equal(count_of(g, &secrets), (int)i + 1); /* that of the Pod was added */
        ground_close(g);
    }
}

static void refusals_have_classes(void **state)
{
    (void)state;
    static const struct {
        int code;
        const char *message; /* of a real API server; empty: any */
        enum offer_error class;
    } rows[] = {
        { 403, "", OFFER_AUTH },
        { 403, "pods is forbidden: User system:anonymous cannot create resource pods", OFFER_AUTH },
        { 403, "pods i-1 is forbidden: exceeded quota: few, requested: pods=1", OFFER_QUOTA },
        { 403,
          "pods i-1 is forbidden: error looking up service account serving/late: serviceaccount "
          "late not found",
          OFFER_TRANSIENT },
        { 403, "pods i-1 is forbidden: no PriorityClass with name serving was found",
          OFFER_INVALID },
        { 403, "pods i-1 is forbidden: violates PodSecurity restricted:latest: hostPath volumes",
          OFFER_INVALID },
        { 422, "", OFFER_INVALID },
        { 404, "", OFFER_INVALID },
        { 500, "", OFFER_TRANSIENT },
    };
    struct ground *g = ground_open(60000000);
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        char text[320];
        snprintf(text, sizeof text,
                 "{\"verb\":\"create\",\"fault\":\"status\",\"code\":%d,\"count\":1,"
                 "\"resource\":\"pods\",\"message\":\"%s\"}",
                 rows[i].code, rows[i].message);
        script(text);
        assert_true(create(g, "i-000000000051")->rc < 0);
        if (g->event.class != rows[i].class)
            fail_msg("%d: %s", rows[i].code, offer_error_names[g->event.class]);
        assert_true(g->event.err.text[0]);
        assert_non_null(strstr(g->event.err.text, rows[i].message));
    }
    ground_close(g);
}

/* A Pod that waits is stuck after its limit, with the scheduler's words, and no longer once it goes on. */
static void a_waiting_pod_is_stuck(void **state)
{
    (void)state;
    struct ground *g = ground_open(300000);
    static const char waits[] =
        "{\"status\":{\"phase\":\"Pending\",\"conditions\":[{\"type\":\"PodScheduled\",\"status\":"
        "\"False\",\"reason\":\"Unschedulable\",\"message\":\"0/3 nodes are available\"}]}}";
    static const char goes_on[] =
        "{\"status\":{\"phase\":\"Running\",\"conditions\":[{\"type\":\"PodScheduled\",\"status\":"
        "\"True\"}]}}";
    struct kube_request patch = { .verb = KUBE_PATCH,
                                  .resource = &kube_pods,
                                  .ns = STR(KUBE_RIG_NS),
                                  .name = STR("i-000000000061"),
                                  .subresource = "status",
                                  .body = str_from(waits) };
    assert_int_equal(create(g, "i-000000000061")->rc, 0);
    kube_must(&g->w, patch);
    KUBE_UNTIL(&g->w, listed(g, "i-000000000061")->stuck == OFFER_CAPACITY);
    assert_string_equal(listed(g, "i-000000000061")->why,
                        "no node for 0 s: 0/3 nodes are available");
    patch.body = str_from(goes_on);
    kube_must(&g->w, patch);
    KUBE_UNTIL(&g->w, listed(g, "i-000000000061")->stuck == OFFER_OK);
    ground_close(g);
}

static void a_nodes_notice_reaches_its_pods(void **state)
{
    (void)state;
    struct ground *g = ground_open(60000000);
    static const struct kube_resource nodes = { "", "v1", "nodes", true };
    assert_int_equal(create(g, "i-000000000071")->rc, 0);
    kube_must(&g->w, (struct kube_request){ .verb = KUBE_PATCH,
                                            .resource = &kube_pods,
                                            .ns = STR(KUBE_RIG_NS),
                                            .name = STR("i-000000000071"),
                                            .body = STR("{\"spec\":{\"nodeName\":\"n1\"}}") });
    kube_must(&g->w,
              (struct kube_request){
                  .verb = KUBE_CREATE,
                  .resource = &nodes,
                  .body = STR("{\"metadata\":{\"name\":\"n1\"},\"spec\":{\"taints\":[{\"key\":"
                              "\"cloud.google.com/impending-node-termination\"}]}}") });
    KUBE_UNTIL(&g->w, listed(g, "i-000000000071")->leaves_us > 0);
    int64_t left_us = listed(g, "i-000000000071")->leaves_us - now(g);
    assert_true(left_us > 0 && left_us <= 30000000);
    assert_non_null(strstr(listed(g, "i-000000000071")->why, "node n1 has the taint"));
    ground_close(g);
}

/* Watches that are cut, and histories that are forgotten meanwhile, take no instance away. */
static void a_cut_watch_goes_on(void **state)
{
    (void)state;
    struct ground *g = ground_open(60000000);
    assert_int_equal(create(g, "i-000000000081")->rc, 0);
    for (int i = 0; i < 3; i++) {
        char body[128], node[16];
        snprintf(node, sizeof node, "n%d", i);
        snprintf(body, sizeof body, "{\"status\":{\"reason\":\"%s\",\"phase\":\"Failed\"}}", node);
        kube_rig_post(&server, "/restart", "{\"empty\":false}");
        kube_must(&g->w, (struct kube_request){ .verb = KUBE_PATCH,
                                                .resource = &kube_pods,
                                                .ns = STR(KUBE_RIG_NS),
                                                .name = STR("i-000000000081"),
                                                .subresource = "status",
                                                .body = str_from(body) });
        if (i > 0) kube_rig_post(&server, "/compact", "{}");
        KUBE_UNTIL(&g->w, strcmp(listed(g, "i-000000000081")->why, node) == 0);
    }
    assert_int_equal(count_of(g, &kube_pods), 1);
    ground_close(g);
}

/* ---- places of a workload ---- */

static const struct kube_resource deployments = { "apps", "v1", "deployments", false };

static struct kube_request write_object(enum kube_verb verb, const struct kube_resource *resource,
                                        const char *name, const char *body)
{
    return (struct kube_request){ .verb = verb,
                                  .resource = resource,
                                  .ns = STR(KUBE_RIG_NS),
                                  .name = str_from(name),
                                  .body = str_from(body) };
}

/* Returns the replicas that the workload is told to have. */
static int64_t replicas(struct ground *g)
{
    struct kube_seen s = { 0 };
    int64_t wanted = -1, there;
    kube_do(&g->w, &s,
            (struct kube_request){ .verb = KUBE_GET,
                                   .resource = &deployments,
                                   .ns = STR(KUBE_RIG_NS),
                                   .name = STR("places"),
                                   .subresource = "scale" });
    assert_int_equal(kube_scale_read(buf_view(&s.body), &wanted, &there, NULL), 0);
    kube_seen_fini(&s);
    return wanted;
}

static void make_place(struct ground *g, const char *name)
{
    char body[512];
    snprintf(
        body, sizeof body,
        "{\"apiVersion\":\"v1\",\"kind\":\"Pod\",\"metadata\":{\"name\":\"%s\",\"labels\":{\"app\":"
        "\"places\"}},\"spec\":{\"containers\":[{\"name\":\"c\",\"image\":\"i\"}]}}",
        name);
    (void)kube_must(&g->w, write_object(KUBE_CREATE, &kube_pods, name, body));
}

static struct cloud_fence fence = { 7, INT64_MAX };

/* Opens a driver whose offer is a Deployment; the test plays its controller. */
static struct ground *places_open(void)
{
    struct ground *g = ground_open(300000);
    struct err err = { 0 };
    static const char deployment[] =
        "{\"apiVersion\":\"apps/v1\",\"kind\":\"Deployment\",\"metadata\":{\"name\":\"places\"},"
        "\"spec\":{\"replicas\":0,\"selector\":{\"matchLabels\":{\"app\":\"places\"}}}}";
    (void)kube_must(&g->w, write_object(KUBE_CREATE, &deployments, "places", deployment));
    cloud_close(&g->cloud);
    g->offer.workload = STR("deployment/places");
    g->section.image = (struct str){ 0 };
    assert_int_equal(kube_settings_make(&g->section, &g->arena, &g->settings, &err), 0);
    g->settings.fence = &fence;
    static const char *const environ[] = { NULL };
    assert_int_equal(kube_cloud_open(g->w.loop, &g->settings, 5000000, environ, 3, &g->cloud, &err),
                     0);
    return g;
}

static struct cloud_call create_call(const struct ground *g, const char *intent, uint64_t epoch,
                                     struct cloud_request *room, struct launch_spec *spec)
{
    static const struct str args[] = { { "muster", 6 } };
    *spec = (struct launch_spec){ .instance = str_from(intent),
                                  .service = STR("chat"),
                                  .pool = STR("pool"),
                                  .offer = STR("gpu"),
                                  .controller_host = STR("controller"),
                                  .controller_port = 8090,
                                  .engine_host = STR("0.0.0.0"),
                                  .engine_args = args,
                                  .engine_arg_count = 1 };
    *room = (struct cloud_request){ .intent = intent,
                                    .offer = &g->settings.sold[0].offer,
                                    .spec = spec };
    return (struct cloud_call){ .op = CLOUD_CREATE, .epoch = epoch, .create = *room };
}

static bool is_taken(struct ground *g, struct cloud_call *what)
{
    struct err err = { 0 };
    return g->cloud.driver->submit(g->cloud.ctx, what, now(g), &err) == 0;
}

/* A place is asked for by replicas, bound once it is there, and given back as the one to delete. */
static void an_intent_takes_a_place(void **state)
{
    (void)state;
    struct ground *g = places_open();
    struct cloud_request room;
    struct launch_spec spec;
    struct cloud_call what = create_call(g, "i-0000000000a1", 7, &room, &spec);
    what.id = ++g->id;
    KUBE_UNTIL(&g->w, is_taken(g, &what));
    KUBE_UNTIL(&g->w, has_event(g) || replicas(g) == 1);
    make_place(g, "places-abc");
    KUBE_UNTIL(&g->w, has_event(g));
    assert_int_equal(g->event.rc, 0);
    assert_string_equal(g->event.made.handle, "places-abc");
    assert_string_equal(g->event.made.intent, "i-0000000000a1");
    KUBE_UNTIL(&g->w, listed(g, "i-0000000000a1") != NULL);
    assert_false(listed(g, "i-0000000000a1")->unreadable);
    what.id = ++g->id; /* again: the same place, and no further replica */
    KUBE_UNTIL(&g->w, is_taken(g, &what));
    KUBE_UNTIL(&g->w, has_event(g));
    assert_string_equal(g->event.made.handle, "places-abc");
    assert_int_equal(replicas(g), 1);
    struct cloud_call over = {
        .op = CLOUD_REMOVE, .epoch = 7, .handle = "places-abc", .intent = "i-0000000000a1"
    };
    assert_int_equal(call(g, over)->rc, 0);
    assert_int_equal(replicas(g), 0);
    struct kube_seen s = { 0 };
    kube_do(&g->w, &s, write_object(KUBE_GET, &kube_pods, "places-abc", ""));
    assert_non_null(strstr(s.body.data, "pod-deletion-cost"));
    kube_seen_fini(&s);
    assert_int_equal(call(g, over)->rc, 0); /* again: no further replica goes */
    ground_close(g);
}

/* A call of a term that is over changes nothing; a place that changed meanwhile is chosen anew. */
static void a_late_call_takes_no_place(void **state)
{
    (void)state;
    struct ground *g = places_open();
    struct cloud_request room;
    struct launch_spec spec;
    struct cloud_call late = create_call(g, "i-0000000000b1", 6, &room, &spec);
    late.id = ++g->id;
    KUBE_UNTIL(&g->w, is_taken(g, &late));
    KUBE_UNTIL(&g->w, has_event(g));
    assert_int_equal(g->event.rc, -EKEYREVOKED);
    assert_int_equal(replicas(g), 0);
    make_place(g, "places-one");
    struct cloud_call good = create_call(g, "i-0000000000b2", 7, &room, &spec);
    good.id = ++g->id;
    (void)kube_must(&g->w, write_object(KUBE_PATCH, &kube_pods, "places-one",
                                        "{\"metadata\":{\"labels\":{\"other\":\"1\"}}}"));
    KUBE_UNTIL(&g->w, is_taken(g, &good));
    KUBE_UNTIL(&g->w, has_event(g));
    assert_int_equal(g->event.rc, 0);
    assert_string_equal(g->event.made.handle, "places-one");
    ground_close(g);
}

static int reset(void **state)
{
    (void)state;
    if (server.real) return 0;
    script("{\"count\":0}");
    kube_rig_post(&server, "/set", "{\"bookmark_ms\":60000,\"linger_ms\":0}");
    kube_rig_post(&server, "/restart", "{\"empty\":true}");
    return 0;
}

#define ON_ANY                                                       \
    cmocka_unit_test_setup(an_intent_is_one_pod, reset),             \
        cmocka_unit_test_setup(another_driver_sees_the_same, reset), \
        cmocka_unit_test_setup(a_strangers_pod_is_not_taken, reset), \
        cmocka_unit_test_setup(a_deleted_pod_leaves, reset)

int main(void)
{
    const struct CMUnitTest any[] = { ON_ANY };
    const struct CMUnitTest scripted[] = {
        cmocka_unit_test_setup(refusals_have_classes, reset),
        cmocka_unit_test_setup(a_waiting_pod_is_stuck, reset),
        cmocka_unit_test_setup(a_nodes_notice_reaches_its_pods, reset),
        cmocka_unit_test_setup(a_cut_watch_goes_on, reset),
        cmocka_unit_test_setup(a_lost_reply_makes_no_second_pod, reset),
        cmocka_unit_test_setup(an_intent_takes_a_place, reset),
        cmocka_unit_test_setup(a_late_call_takes_no_place, reset),
    };
    if (!kube_rig_fake(&server, ARGS(NULL))) return RIG_SKIP;
    int failed = cmocka_run_group_tests_name("scripted", any, NULL, NULL);
    failed += cmocka_run_group_tests_name("faults", scripted, NULL, NULL);
    kube_rig_end(&server);
    if (kube_rig_real(&server)) {
        failed += cmocka_run_group_tests_name("real", any, NULL, NULL);
        kube_rig_end(&server);
    }
    return rig_end(failed);
}
