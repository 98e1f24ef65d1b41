/* cmd_doctor.c - `muster doctor`: make all checks in turn, print what they found.
 *
 * A check is a row of the table at the end. What several of them need (the configuration, the fleet's
 * record, the controller's status) is gathered before the first, or by a check that stands before them. */
#include "base/core/bits.h"
#include "base/core/own.h"
#include "cli/command.h"
#include "cli/doctor/doctor.h"
#include "cli/schema.h"
#include "controller/config.h"

#include <stdio.h>
#include <unistd.h>

#define FILE_DEFAULT "muster.yaml"

const char *const check_status_names[CHECK_STATUS_COUNT] = { "ok", "warning", "failed", "skipped" };

#define AT(member) .offset = offsetof(struct doctor_options, member)
// clang-format off
static const struct config_field rows[] = {
    REMOTE_ROWS(struct doctor_options, place),
    { .name = "file", .letter = 'f', .type = CONFIG_TEXT, AT(file),
      .about = "Configuration of the fleet; without it the one that `muster up` started, or "
               FILE_DEFAULT " here." },
    { .name = "digest", .type = CONFIG_BOOL, .default_text = "false", AT(digest),
      .about = "Read model files of more than 1 GiB too, and compare what instances serve." },
    REMOTE_TREES_ROW(struct doctor_options, output),
};
static const struct table_column columns[] = {
    { "CHECK", "check", TABLE_TEXT }, { "STATUS", "status", TABLE_STATE },
    { "WHY", "why", TABLE_TEXT },     { "NEXT", "next", TABLE_TEXT },
};
static const struct {
    const char *name;
    void (*run)(struct doctor *d);
} checks[] = {
    { "configuration", check_configuration },
    { "state folder",  check_state },
    { "secret",        check_secret },
    { "store",         check_store },
    { "disk",          check_disk },
    { "controller",    check_controller }, /* those below read the status that it gets */
    { "rights",        check_rights },
    { "router",        check_routers },
    { "instances",     check_instances },
    { "offers",        check_offers },
    { "versions",      check_versions },
    { "clocks",        check_clocks },
    { "ports",         check_ports },
    { "models",        check_models },
    { "provider",      check_providers },
    { "descriptors",   check_descriptors },
    { "processor",     check_processor },
    { "time",          check_time },
};
// clang-format on
static const struct config_record record = CONFIG_RECORD_OF(struct doctor_options, rows);
static const struct opt_command usage = {
    .name = "muster doctor",
    .about = "Check a fleet and its machine: what is wrong, why, and what to do next.",
    .options = &record,
    .notes = "The exit status is 0 if nothing failed. A check that needs a running fleet is "
             "skipped where\n"
             "none runs. Nothing is changed.",
};

void doctor_say(struct doctor *d, enum check_status status, const char *next, const char *why, ...)
{
    CLEANUP(buf_fini) struct buf text = { 0 };
    va_list ap;
    va_start(ap, why);
    buf_vprintf(&text, why, ap);
    va_end(ap);
    d->count[status]++;
    json_object(&d->w);
    json_kv_text(&d->w, "check", d->name);
    json_kv_text(&d->w, "status", check_status_names[status]);
    json_kv_str(&d->w, "why", buf_view(&text));
    json_kv_text(&d->w, "next", next);
    json_object_end(&d->w);
}

bool doctor_has_state(const struct doctor *d)
{
    return access(d->state.data, F_OK) == 0;
}

int doctor_path(const struct doctor *d, const char *name, char ret[PATH_MAX])
{
    return fleet_file_path(d->state, name, ret, NULL);
}

/* ---- what the checks need ---- */

/* Finds the configuration's file: the option, the fleet's record, or the usual name. */
static void find_file(struct doctor *d)
{
    if (d->o->file.len > 0)
        d->file = d->o->file.data;
    else if (d->fleet.config[0])
        d->file = d->fleet.config;
    else if (access(FILE_DEFAULT, F_OK) == 0)
        d->file = FILE_DEFAULT;
}

/* Takes the state directory of the configuration, where none was named. */
static void find_state(struct doctor *d)
{
    bool named = !str_eq(d->o->place.state, STR(FLEET_FILE_STATE_DEFAULT));
    if (named || !d->config) return;
    const struct controller_section *c = config_section_get(d->config, controller_section.name);
    d->state = c->state;
}

/* Takes the controller's address of the configuration, where neither a flag nor the record has one. */
static void find_controller(struct doctor *d, struct buf *address, struct remote_place *place)
{
    if (place->controller.len > 0 || d->fleet.controller.id.pid != 0 || !d->config) return;
    const struct controller_section *c = config_section_get(d->config, controller_section.name);
    if (c->tls.certificate.len > 0) buf_text(address, "https://");
    buf_str(address, c->listen);
    if (address->rc < 0) return;
    place->controller = buf_view(address);
    if (place->ca.len == 0) place->ca = c->tls.ca;
}

static void gather(struct doctor *d)
{
    CLEANUP(buf_fini) struct buf address = { 0 };
    struct config_sources sources = { .environ = (const char *const *)environ };
    struct remote_place place = d->o->place;
    d->state = d->o->place.state;
    (void)fleet_file_read(d->state, &d->fleet, NULL); /* absent: `muster up` has started nothing */
    find_file(d);
    sources.path = d->file;
    if (d->file)
        (void)config_load(&schema, &sources, &d->config, NULL, NULL); /* check_configuration */
    find_state(d);
    if (!d->fleet.config[0]) (void)fleet_file_read(d->state, &d->fleet, NULL);
    place.state = d->state;
    find_controller(d, &address, &place);
    d->has_api = remote_find(&place, &d->api, NULL) == 0;
}

/* ---- the answer ---- */

static int show(const struct doctor *d, struct str findings, struct err *err)
{
    CLEANUP(buf_fini) struct buf out = { 0 };
    struct table t = { columns, COUNT_OF(columns), 0, colour_wanted(stdout) };
    int rc = table_print(&t, findings, &out);
    buf_printf(&out, "\n%u ok, %u warnings, %u failed, %u skipped\n", d->count[CHECK_OK],
               d->count[CHECK_WARNING], d->count[CHECK_FAILED], d->count[CHECK_SKIPPED]);
    return rc < 0 ? err_set(err, rc, "the table cannot be made") : command_print(&out, err);
}

static int show_tree(const struct doctor *d, struct str findings, struct err *err)
{
    CLEANUP(buf_fini) struct buf out = { 0 };
    struct json_writer w;
    json_writer_init(&w, &out);
    json_object(&w);
    json_key(&w, "checks");
    json_put_raw(&w, findings);
    for (uint32_t s = 0; s < CHECK_STATUS_COUNT; s++)
        json_kv_u64(&w, check_status_names[s], d->count[s]);
    json_object_end(&w);
    return remote_print(d->o->output, &out, err);
}

static int doctor(const void *options, struct err *err)
{
    CLEANUP(buf_fini) struct buf findings = { 0 };
    struct doctor d = { .o = options };
    gather(&d);
    json_writer_init(&d.w, &findings);
    json_array(&d.w);
    for (size_t i = 0; i < COUNT_OF(checks); i++) {
        d.name = checks[i].name;
        checks[i].run(&d);
    }
    json_array_end(&d.w);
    int rc = findings.rc < 0               ? err_set(err, findings.rc, "no memory for the findings")
             : d.o->output == REMOTE_TABLE ? show(&d, buf_view(&findings), err)
                                           : show_tree(&d, buf_view(&findings), err);
    bool failed = d.count[CHECK_FAILED] > 0;
    config_free(d.config);
    buf_fini(&d.status);
    if (rc < 0) return rc;
    return failed ? EXIT_FAILED : 0;
}

static int run(int argc, char *const *argv)
{
    struct doctor_options options;
    return command_run(&usage, argc, argv, &options, doctor);
}

const struct command command_doctor = {
    .name = "doctor",
    .group = "Look",
    .about = "what is wrong with a fleet, why, what next",
    .run = run,
};
