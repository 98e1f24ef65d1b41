/* cmd_role.c - from a command line to a role's configuration. */
#include "cli/cmd_role.h"

#include "base/core/own.h"
#include "base/io/descriptors.h"
#include "base/io/proc.h"
#include "cli/command.h"
#include "cli/schema.h"

#include <malloc.h>
#include <stdio.h>
#include <unistd.h>

/* What is as large as MAPPED_BYTES is a body, a reply or a prompt's tokens: mapped by itself it is the
 * kernel's again once it is freed. Left alone, glibc raises the line to the largest it has seen, and a
 * flood of bodies of 8 MB stays in its arenas. TRIM_BYTES is what an arena may keep at its end. */
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

static int load(const struct role_options *options, const struct opt_parsed *parsed,
                const char *section, struct config **ret, struct err *err)
{
    struct config_sources sources = {
        .path = options->config.data,
        .environ = (const char *const *)environ,
        .flags = parsed->flags,
        .flag_count = parsed->flag_count,
    };
    int rc = config_load(&schema, &sources, ret, NULL, err);
    if (rc < 0) return rc;
    return config_require(*ret, section, err);
}

struct role {
    const char *command, *about;
    const struct config_section *section;
    int (*run)(const void *section, struct err *err); /* one of these two */
    int (*run_whole)(const struct config *config, struct err *err);
};

static int run_role(const struct role *role, int argc, char *const *argv)
{
    struct opt_command usage = {
        .name = role->command, .about = role->about, .options = &record, .section = role->section
    };
    struct role_options options;
    CLEANUP(opt_parsed_fini) struct opt_parsed parsed = { 0 };
    CLEANUP(config_freep) struct config *config = NULL;
    struct err err = { 0 };
    int rc = opt_parse(&usage, argc, argv, &options, &parsed, &err);
    if (rc < 0) return opt_fail(&usage, &err);
    if (parsed.help) return opt_show_help(&usage);
    rc = proc_hash_key_draw(&err);
    if (rc < 0) {
        fprintf(stderr, "%s: %s\n", role->command, err_text(&err, rc));
        return EXIT_FAILED;
    }
    rc = load(&options, &parsed, role->section->name, &config, &err);
    if (rc < 0) {
        fprintf(stderr, "%s: %s\n", role->command, err_text(&err, rc));
        return EXIT_USAGE;
    }
    descriptors_raise();
    mallopt(M_MMAP_THRESHOLD, MAPPED_BYTES);
    mallopt(M_TRIM_THRESHOLD, TRIM_BYTES);
    rc = role->run ? role->run(config_section_get(config, role->section->name), &err)
                   : role->run_whole(config, &err);
    if (rc < 0) fprintf(stderr, "%s: %s\n", role->command, err_text(&err, rc));
    return rc < 0 ? EXIT_FAILED : 0;
}

int role_run(const char *command, const char *about, const struct config_section *section, int argc,
             char *const *argv, int (*run)(const void *section, struct err *err))
{
    struct role role = { .command = command, .about = about, .section = section, .run = run };
    return run_role(&role, argc, argv);
}

int role_run_whole(const char *command, const char *about, const struct config_section *section,
                   int argc, char *const *argv,
                   int (*run)(const struct config *config, struct err *err))
{
    struct role role = { .command = command, .about = about, .section = section, .run_whole = run };
    return run_role(&role, argc, argv);
}
