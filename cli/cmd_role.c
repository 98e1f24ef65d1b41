/* cmd_role.c - the commands that run a role: `muster agent`, `controller`, `engine`, `router`.
 *
 * Their options are the fields of the role's section of the configuration. A flag beats the environment,
 * the environment beats the file, the file beats the default; --config names the file.
 */
#include "agent/agent.h"
#include "base/core/own.h"
#include "base/io/file.h"
#include "base/io/models.h"
#include "base/io/net/descriptors.h"
#include "base/io/notify.h"
#include "base/io/proc.h"
#include "cli/command.h"
#include "cli/schema.h"
#include "cli/tokenizer_load.h"
#include "controller/config.h"
#include "controller/controller.h"
#include "engine/config.h"
#include "engine/engine.h"
#include "router/router.h"

#include <malloc.h>
#include <stdio.h>
#include <unistd.h>

/* Allocations of MAPPED_BYTES or more are bodies, replies or prompts' tokens. They are mapped one by one,
 * so that the kernel gets them back when they are freed. By default glibc raises this threshold to the
 * largest block freed, and a flood of bodies of 8 MB stays in its arenas. TRIM_BYTES is the free memory
 * that an arena may keep at its end. */
#define MAPPED_BYTES (256 << 10)
#define TRIM_BYTES (4 << 20)

struct role_options {
    struct str config;
};

static const struct config_field rows[] = {
    { .name = "config",
      .letter = 'c',
      .type = CONFIG_TEXT,
      .offset = offsetof(struct role_options, config),
      .about = "Configuration file; flags and MUSTER_* variables come before it." },
};
static const struct config_record record = CONFIG_RECORD_OF(struct role_options, rows);

static int load(const struct config_sources *sources, const char *section, struct config **ret,
                struct err *err)
{
    int rc = config_load(&schema, sources, ret, NULL, err);
    if (rc < 0) return rc;
    return config_require(*ret, section, err);
}

/* One command. Exactly one of run and run_whole is set; run gets the section's struct, run_whole the
 * whole configuration and where it came from. */
struct role_command {
    const char *name, *about;
    const struct config_section *section;
    int (*run)(const void *section, struct err *err);
    int (*run_whole)(const struct config *config, const struct config_sources *sources,
                     struct err *err);
};

static int role_run(const struct role_command *role, int argc, char *const *argv)
{
    struct opt_command usage = {
        .name = role->name, .about = role->about, .options = &record, .section = role->section
    };
    struct role_options options;
    CLEANUP(opt_parsed_fini) struct opt_parsed parsed = { 0 };
    CLEANUP(config_freep) struct config *config = NULL;
    struct err err = { 0 };
    int rc = opt_parse(&usage, argc, argv, &options, &parsed, &err);
    if (rc < 0) return opt_fail(&usage, &err);
    if (parsed.help) return opt_show_help(&usage);
    rc = proc_guard_memory(&err);
    if (rc == 0) rc = proc_hash_key_draw(&err);
    if (rc == 0) rc = notify_open((const char *const *)environ, &err);
    if (rc < 0) {
        fprintf(stderr, "%s: %s\n", role->name, err_text(&err, rc));
        return EXIT_FAILED;
    }
    const struct config_sources sources = { .path = options.config.data,
                                            .environ = (const char *const *)environ,
                                            .flags = parsed.flags,
                                            .flag_count = parsed.flag_count };
    rc = load(&sources, role->section->name, &config, &err);
    if (rc < 0) {
        fprintf(stderr, "%s: %s\n", role->name, err_text(&err, rc));
        return EXIT_USAGE;
    }
    descriptors_raise();
    mallopt(M_MMAP_THRESHOLD, MAPPED_BYTES);
    mallopt(M_TRIM_THRESHOLD, TRIM_BYTES);
    rc = role->run ? role->run(config_section_get(config, role->section->name), &err)
                   : role->run_whole(config, &sources, &err);
    if (rc < 0) fprintf(stderr, "%s: %s\n", role->name, err_text(&err, rc));
    return rc < 0 ? EXIT_FAILED : 0;
}

static int agent(const void *section, struct err *err)
{
    return agent_main(section, tokenizer_load, err);
}

static int check_later(const struct config *config, struct err *err)
{
    return check_loaded(config, NULL, err);
}

static int controller(const struct config *config, const struct config_sources *sources,
                      struct err *err)
{
    struct controller_config c = { .sources = *sources, .check = check_later };
    controller_config_fill(&c, config);
    return controller_main(&c, err);
}

/* Starts the engine with the file that its `model` means. A name of models.list brings its digest, and is what
 * requests call the model unless another name is given. */
static int engine(const struct config *config, const struct config_sources *sources,
                  struct err *err)
{
    struct engine_config c =
        *(const struct engine_config *)config_section_get(config, engine_section.name);
    const struct controller_section *cc = config_section_get(config, controller_section.name);
    const struct models_section *names = config_section_get(config, models_section.name);
    struct models_place model, draft;
    char stamps[PATH_MAX];
    (void)sources;
    int rc = models_resolve(names, c.model, &model, err);
    if (rc < 0) return err_prefix(err, rc, "--model");
    c.model = str_from(model.path);
    rc = c.draft_model.len > 0 ? models_resolve(names, c.draft_model, &draft, err) : 0;
    if (rc < 0) return err_prefix(err, rc, "--draft-model");
    if (c.draft_model.len > 0) c.draft_model = str_from(draft.path);
    if (!model.entry) return engine_main(&c, err);
    if (c.served_model_name.len == 0) c.served_model_name = model.entry->name;
    if (c.model_sha256.len == 0) c.model_sha256 = model.entry->sha256;
    if (c.model_stamps.len == 0 && c.model_sha256.len > 0 &&
        file_make_folders(cc->state.data, 0700, NULL) == 0 &&
        snprintf(stamps, sizeof stamps, "%s/" MODELS_STAMPS, cc->state.data) < (int)sizeof stamps)
        c.model_stamps = str_from(stamps);
    return engine_main(&c, err);
}

static int router(const void *section, struct err *err)
{
    return router_main(section, err);
}

static int run_agent(int argc, char *const *argv)
{
    static const struct role_command role = {
        .name = "muster agent",
        .about = "Supervise the engine of one instance; the controller's clouds start it.",
        .section = &agent_section,
        .run = agent,
    };
    return role_run(&role, argc, argv);
}

static int run_controller(int argc, char *const *argv)
{
    static const struct role_command role = {
        .name = "muster controller",
        .about = "Keep each service as large as its SLO needs, at the least cost.",
        .section = &controller_section,
        .run_whole = controller,
    };
    return role_run(&role, argc, argv);
}

static int run_engine(int argc, char *const *argv)
{
    static const struct role_command role = {
        .name = "muster engine",
        .about = "Serve one model on this machine.",
        .section = &engine_section,
        .run_whole = engine,
    };
    return role_run(&role, argc, argv);
}

static int run_router(int argc, char *const *argv)
{
    static const struct role_command role = {
        .name = "muster router",
        .about = "Take client requests and send each where it completes at the least cost.",
        .section = &router_section,
        .run = router,
    };
    return role_run(&role, argc, argv);
}

// clang-format off
const struct command command_agent = {
    .name = "agent", .group = "Roles", .about = "supervise one engine", .run = run_agent,
};
const struct command command_controller = {
    .name = "controller", .group = "Roles",
    .about = "launch, drain and end instances as demand asks", .run = run_controller,
};
const struct command command_engine = {
    .name = "engine", .group = "Roles", .about = "serve one model", .run = run_engine,
};
const struct command command_router = {
    .name = "router", .group = "Roles", .about = "route requests to engines", .run = run_router,
};
// clang-format on
