//! The `plugpull` binary.

use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use clap::{Args, Parser, Subcommand};
use plugpull::context::Context;
use plugpull::error::{RunError, shell_word};
use plugpull::judge::Sabotage;
use plugpull::progress::Bar;
use plugpull::scenario_file::{load, plan};
use plugpull::{bench, doctor, registry, replay, runner, selftest};
use plugpull_model::plan::Plan;
use plugpull_model::seed::Seed;
use plugpull_model::verdict::{Exit, Role};
use plugpull_reports::{Report, Style};

/// Does this storage stack keep what it acknowledged when the power goes?
#[derive(Parser)]
#[command(version, max_term_width = 100, after_help = EXIT_CODES)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

const EXIT_CODES: &str = "Exit codes: 0 upheld, 1 violated, 2 usage or scenario error, 3 inconclusive, \
4 every subject refused or a needed backend missing, 5 the rig itself failed.";

#[derive(Subcommand)]
enum Command {
    /// Run a scenario: record each cell, cut at every position, judge every crash image
    Run(RunArgs),
    /// Print the resolved plan of a scenario and run nothing
    Plan(PlanArgs),
    /// Rebuild the crash image of one finding and judge it again
    Replay {
        /// The run directory
        run: PathBuf,
        /// The finding's id, e.g. 'ext4-nobarrier@volatile#1'
        finding: String,
    },
    /// End what a killed run has left on this machine
    Clean,
    /// Tell what this machine can do, and the remedy for what it cannot
    Doctor {
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Break the rig on purpose and show that each break is caught
    Selftest {
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Measure speed as ratios to a baseline measured in the same run
    Bench {
        /// Which: names or their beginnings [default: all]
        names: Vec<String>,
        /// As JSON
        #[arg(long)]
        json: bool,
        /// Crash images judged at the same time [default: the number of processors]
        #[arg(long, value_parser = jobs_word)]
        jobs: Option<usize>,
    },
    /// The drive's own process; started by plugpull itself
    #[command(hide = true)]
    Drive,
}

#[derive(Args)]
struct PlanArgs {
    /// The scenario; without it, the built-in quickstart
    scenario: Option<PathBuf>,
    /// The seed of every choice, instead of the scenario's
    #[arg(long)]
    seed: Option<u64>,
    /// Only the cells whose id (STACK@DRIVE) matches; `*` stands for anything. May be repeated
    #[arg(long = "cell", value_name = "PATTERN")]
    cells: Vec<String>,
}

#[derive(Args)]
struct RunArgs {
    #[command(flatten)]
    plan: PlanArgs,
    /// The run directory to make [default: runs/<utc>-<seed>]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Go on with an interrupted run
    #[arg(long, value_name = "DIR", conflicts_with_all = ["out", "scenario", "seed", "cells"])]
    resume: Option<PathBuf>,
    /// Crash images judged at the same time [default: the number of processors]
    #[arg(long, value_parser = jobs_word)]
    jobs: Option<usize>,
    /// Cut through the unmount too, not only to the last acknowledgement
    #[arg(long)]
    through_unmount: bool,
    /// Print report.json instead of the table
    #[arg(long)]
    json: bool,
    /// No progress
    #[arg(long, short)]
    quiet: bool,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let outcome = std::panic::catch_unwind(|| run(cli.command));
    let exit = match outcome {
        Ok(Ok(exit)) => exit,
        Ok(Err(error)) => {
            let _ = writeln!(io::stderr(), "plugpull: {error}");
            error.exit()
        }
        Err(_) => {
            let _ = writeln!(
                io::stderr(),
                "plugpull: this is a bug of plugpull, not a finding"
            );
            Exit::Failed
        }
    };
    ExitCode::from(exit as u8)
}

fn run(command: Command) -> Result<Exit, RunError> {
    match command {
        Command::Drive => drive(),
        Command::Doctor { json } => {
            doctor::run(json, &mut io::stdout()).map_err(|source| RunError::Kernel {
                what: "cannot print".to_owned(),
                source,
            })
        }
        Command::Clean => Ok(clean()),
        Command::Plan(args) => {
            let plan = planned(&args)?;
            print(&plan.to_json());
            Ok(Exit::Upheld)
        }
        Command::Replay { run, finding } => {
            let context = started(None)?;
            replay::replay(&context, &run, &finding, &mut io::stdout())
        }
        Command::Selftest { json } => selftest::run(&started(None)?, json, &mut io::stdout()),
        Command::Bench { names, json, jobs } => {
            bench::run(&started(jobs)?, &names, json, &mut io::stdout())
        }
        Command::Run(args) => run_scenario(&args),
    }
}

fn jobs_word(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(jobs) if (1..=plugpull::context::MAX_JOBS).contains(&jobs) => Ok(jobs),
        _ => Err(format!(
            "a number from 1 to {}",
            plugpull::context::MAX_JOBS
        )),
    }
}

fn print(text: &str) {
    // A reader that closed the pipe has seen what it wanted.
    let _ = io::stdout().write_all(text.as_bytes());
}

fn drive() -> Result<Exit, RunError> {
    plugpull_crash::serve::process::main()
        .map(|()| Exit::Upheld)
        .map_err(|source| RunError::Kernel {
            what: "the drive process ends".to_owned(),
            source,
        })
}

fn clean() -> Exit {
    let cleaned = registry::clean();
    for line in &cleaned.done {
        print(&format!("{line}\n"));
    }
    for line in &cleaned.left {
        let _ = writeln!(io::stderr(), "plugpull: still there: {line}");
    }
    if cleaned.done.is_empty() && cleaned.left.is_empty() {
        print("nothing to clean\n");
    }
    if cleaned.left.is_empty() {
        Exit::Upheld
    } else {
        Exit::Failed
    }
}

/// A context with Ctrl-C and SIGTERM heard; what earlier runs left is ended first.
fn started(jobs: Option<usize>) -> Result<Context, RunError> {
    let _ = registry::clean();
    let context = Context::new(None, jobs)?;
    for signal in [
        signal_hook::consts::SIGINT,
        signal_hook::consts::SIGTERM,
        signal_hook::consts::SIGHUP,
    ] {
        signal_hook::flag::register(signal, Arc::clone(&context.stop)).map_err(|source| {
            RunError::Kernel {
                what: "cannot listen to signals".to_owned(),
                source,
            }
        })?;
    }
    Ok(context)
}

fn planned(args: &PlanArgs) -> Result<Plan, RunError> {
    let loaded = load(args.scenario.as_deref())?;
    let mut plan = plan(&loaded, args.seed.map(Seed))?;
    if !args.cells.is_empty() {
        let ids: Vec<String> = plan.cells.iter().map(|cell| cell.id.clone()).collect();
        if let Some(pattern) = args
            .cells
            .iter()
            .find(|p| !ids.iter().any(|id| matches(p, id)))
        {
            return Err(RunError::Usage(format!(
                "--cell {pattern}: no cell matches; there are: {}",
                ids.join(", ")
            )));
        }
        plan.cells
            .retain(|cell| args.cells.iter().any(|pattern| matches(pattern, &cell.id)));
        if !plan.cells.iter().any(|cell| cell.role == Role::Subject) {
            return Err(RunError::Usage(
                "--cell: only controls match, there is nothing to judge".to_owned(),
            ));
        }
    }
    Ok(plan)
}

/// Whether `text` matches `pattern`, where `*` stands for any run of characters.
fn matches(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = text.strip_prefix(first) else {
        return false;
    };
    let mut parts = parts.peekable();
    if parts.peek().is_none() {
        return rest.is_empty();
    }
    while let Some(part) = parts.next() {
        if parts.peek().is_none() {
            return rest.ends_with(part);
        }
        let Some(at) = rest.find(part) else {
            return false;
        };
        rest = &rest[at + part.len()..];
    }
    true
}

fn run_scenario(args: &RunArgs) -> Result<Exit, RunError> {
    let mut context = started(args.jobs)?;
    context.through_unmount = args.through_unmount;
    let (report, out) = match &args.resume {
        Some(out) => (
            runner::resume(&context, out, &mut Bar::new(args.quiet))?,
            out.clone(),
        ),
        None => {
            let plan = planned(&args.plan)?;
            let out = args.out.clone().unwrap_or_else(|| default_out(&plan));
            let report = runner::start(
                &context,
                &plan,
                &out,
                Sabotage::None,
                &mut Bar::new(args.quiet),
            )?;
            (report, out)
        }
    };
    show(&report, args.json, &out);
    if context.stopped() {
        let _ = writeln!(
            io::stderr(),
            "plugpull: interrupted; go on with: plugpull run --resume {}",
            shell_word(&out)
        );
    }
    Ok(report.exit())
}

fn show(report: &Report, json: bool, out: &Path) {
    if json {
        print(&report.to_json());
        return;
    }
    let terminal = io::stdout().is_terminal();
    let colour = terminal && std::env::var_os("NO_COLOR").is_none();
    let width = std::env::var("COLUMNS")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(120);
    print(&report.to_table(Style { colour, width }));
    print(&format!("run directory: {}\n", out.display()));
}

fn default_out(plan: &Plan) -> PathBuf {
    let now = jiff::Timestamp::now()
        .strftime("%Y%m%dT%H%M%SZ")
        .to_string();
    let name = format!("{now}-{}", plan.seed.0);
    // Two runs in one second: take the next free name.
    let mut out = Path::new("runs").join(&name);
    let mut next = 2;
    while out.exists() {
        out = Path::new("runs").join(format!("{name}-{next}"));
        next += 1;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn a_star_stands_for_anything() {
        assert!(matches("raw-*", "raw-flush@volatile"));
        assert!(matches("*@volatile", "raw-flush@volatile"));
        assert!(!matches("*@volatile", "raw-flush@volatile-512"));
        assert!(matches("ext4*@*", "ext4-barrier@lying"));
        assert!(!matches("ext4", "ext4-barrier@lying"));
    }
}
