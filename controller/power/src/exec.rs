//! The outlet that configured commands switch.

use crate::{
    Clock, CommandEnd, CommandOutput, Commands, CutReceipt, Evidence, EvidenceKind, Outlet,
    PowerError, PowerState,
};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// So many characters of a command's output go into the evidence.
const DETAIL_CHARS: usize = 200;
/// No configured time is longer than a day: a longer one is a wrong unit.
const LONGEST_MS: u64 = 24 * 60 * 60 * 1000;

/// How the end of the `status` command reads as a state. Every condition given must hold.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StateMatch {
    /// The exit status. When none is given it must be 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// A word of the standard output, in any case. Words are made of letters, digits, `_`, `-` and
    /// inner dots. Let the command print the state and little else: a number is soon found in
    /// other places.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub word: Option<String>,
}

impl StateMatch {
    fn matches(&self, output: &CommandOutput) -> bool {
        let said = || String::from_utf8_lossy(&output.stdout).into_owned();
        output.end == CommandEnd::Exit(self.exit_code.unwrap_or(0))
            && self
                .word
                .as_ref()
                .is_none_or(|word| words(&said()).any(|w| w.eq_ignore_ascii_case(word)))
    }
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !(c.is_alphanumeric() || "_-.".contains(c)))
        .map(|word| word.trim_matches('.'))
}

/// An outlet switched by commands: lists of a program and its arguments, never a shell line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExecConfig {
    /// The name that receipts and errors carry.
    pub name: String,
    /// Cuts power at once. A graceful or delayed off is not a power cut.
    pub off: Vec<String>,
    /// Restores power.
    pub on: Vec<String>,
    /// Asks for the state.
    pub status: Vec<String>,
    /// What `status` says when power is off.
    pub off_when: StateMatch,
    /// What `status` says when power is on. When both fit, or neither, the state is unknown.
    pub on_when: StateMatch,
    /// What `status` really looks at.
    #[serde(default = "default_evidence")]
    pub confirms_by: EvidenceKind,
    /// One command may take so long.
    #[serde(default = "default_command_timeout_ms")]
    pub command_timeout_ms: u64,
    /// The state asked for must be seen within this time after the request.
    #[serde(default = "default_confirm_timeout_ms")]
    pub confirm_timeout_ms: u64,
    /// The pause between two looks at the state.
    #[serde(default = "default_poll_ms")]
    pub poll_ms: u64,
}

fn default_evidence() -> EvidenceKind {
    EvidenceKind::OutletStatus
}

fn default_command_timeout_ms() -> u64 {
    10_000
}

fn default_confirm_timeout_ms() -> u64 {
    30_000
}

fn default_poll_ms() -> u64 {
    100
}

impl ExecConfig {
    fn check(&self) -> Result<(), PowerError> {
        let fail = |problem: String, remedy| {
            Err(PowerError::Config {
                outlet: self.name.clone(),
                problem,
                remedy,
            })
        };
        if self.name.trim().is_empty() {
            return fail(
                "`name` is empty".to_owned(),
                "name the outlet as its label does",
            );
        }
        for (key, argv) in [
            ("off", &self.off),
            ("on", &self.on),
            ("status", &self.status),
        ] {
            if argv.first().is_none_or(String::is_empty) {
                let remedy = "give a list of the program and its arguments";
                return fail(format!("`{key}` names no program"), remedy);
            }
        }
        for (key, given) in [("off_when", &self.off_when), ("on_when", &self.on_when)] {
            let remedy = "give `exit_code`, `word` or both";
            if given.exit_code.is_none() && given.word.is_none() {
                return fail(format!("`{key}` is empty and fits any status"), remedy);
            }
            if let Some(word) = &given.word
                && words(word).next() != Some(word.as_str())
            {
                let remedy = "give one word of letters, digits, `_`, `-` and inner dots";
                return fail(
                    format!("`{key}.word` is `{word}`, which no word can equal"),
                    remedy,
                );
            }
        }
        if self.off_when == self.on_when {
            let remedy = "write what tells the two states apart";
            return fail("`off_when` and `on_when` are the same".to_owned(), remedy);
        }
        let of_status = [
            EvidenceKind::OutletStatus,
            EvidenceKind::ChassisStatus,
            EvidenceKind::MeasuredLoad,
        ];
        if !of_status.contains(&self.confirms_by) {
            let remedy = "write `outlet-status`, `chassis-status` or `measured-load`";
            return fail(
                "`confirms_by` is not what a status command can see".to_owned(),
                remedy,
            );
        }
        let times = [
            ("command_timeout_ms", self.command_timeout_ms),
            ("confirm_timeout_ms", self.confirm_timeout_ms),
            ("poll_ms", self.poll_ms),
        ];
        match times.iter().find(|(_, ms)| !(1..=LONGEST_MS).contains(ms)) {
            Some((key, ms)) => fail(
                format!("`{key}` is {ms}"),
                "write 1 ms to 86400000 ms, a day",
            ),
            None => Ok(()),
        }
    }

    fn read_state(&self, output: &CommandOutput) -> PowerState {
        // The words that were dropped might have said the other state.
        if output.stdout_truncated {
            return PowerState::Unknown;
        }
        match (self.off_when.matches(output), self.on_when.matches(output)) {
            (true, false) => PowerState::Off,
            (false, true) => PowerState::On,
            _ => PowerState::Unknown,
        }
    }
}

/// Runs the configured commands, and polls the state until it is the one asked for.
#[derive(Debug)]
pub struct ExecOutlet<R, C> {
    config: ExecConfig,
    commands: R,
    clock: C,
    /// The last observation, if it was of power on and nothing has been cut since.
    seen_on: Option<Evidence>,
}

impl<R: Commands, C: Clock> ExecOutlet<R, C> {
    /// An outlet of this configuration, which is checked; nothing is run.
    pub fn new(config: ExecConfig, commands: R, clock: C) -> Result<Self, PowerError> {
        config.check()?;
        Ok(Self {
            config,
            commands,
            clock,
            seen_on: None,
        })
    }

    fn run(&mut self, role: &'static str, timeout: Duration) -> Result<Evidence, PowerError> {
        let (argv, kind) = match role {
            "off" => (&self.config.off, EvidenceKind::Request),
            "on" => (&self.config.on, EvidenceKind::Request),
            _ => (&self.config.status, self.config.confirms_by),
        };
        let output = self
            .commands
            .run(argv, timeout)
            .map_err(|source| PowerError::NotStarted {
                outlet: self.config.name.clone(),
                role,
                program: argv.first().cloned().unwrap_or_default(),
                source,
            })?;
        let state = match kind {
            EvidenceKind::Request => PowerState::Unknown,
            _ => self.config.read_state(&output),
        };
        Ok(Evidence {
            kind,
            at_ns: self.clock.now_ns(),
            state,
            detail: detail(role, &output),
        })
    }

    /// Looks at the state until it is `wanted`, or the time for that is over; at least once.
    /// Every look goes to `seen`, also one that failed: the request may have been carried out.
    fn wait_for(&mut self, wanted: PowerState, mut seen: impl FnMut(Evidence)) -> Option<Evidence> {
        let ms = Duration::from_millis;
        let deadline = self.clock.now_ns() + self.config.confirm_timeout_ms * 1_000_000;
        loop {
            let left = Duration::from_nanos(deadline.saturating_sub(self.clock.now_ns()));
            let look = self.run(
                "status",
                left.clamp(ms(1), ms(self.config.command_timeout_ms)),
            );
            let look = look.unwrap_or_else(|error| Evidence {
                kind: self.config.confirms_by,
                at_ns: self.clock.now_ns(),
                state: PowerState::Unknown,
                detail: error.to_string(),
            });
            seen(look.clone());
            if look.state == wanted {
                return Some(look);
            }
            let left = deadline.saturating_sub(self.clock.now_ns());
            if left == 0 {
                return None;
            }
            self.clock
                .sleep(ms(self.config.poll_ms).min(Duration::from_nanos(left)));
        }
    }

    fn timeout(&self) -> Duration {
        Duration::from_millis(self.config.command_timeout_ms)
    }
}

impl<R: Commands, C: Clock> Outlet for ExecOutlet<R, C> {
    fn name(&self) -> &str {
        &self.config.name
    }

    fn state(&mut self) -> Result<Evidence, PowerError> {
        self.seen_on = None;
        let seen = self.run("status", self.timeout())?;
        self.seen_on = (seen.state == PowerState::On).then(|| seen.clone());
        Ok(seen)
    }

    /// A state of off that was there before the cut would confirm any cut, so that the outlet is
    /// asked first unless it has been seen on since the last cut.
    fn cut(&mut self) -> Result<CutReceipt, PowerError> {
        let before = match self.seen_on.take() {
            Some(on) => on,
            None => self.state()?,
        };
        if before.state == PowerState::Off {
            let (outlet, detail) = (self.config.name.clone(), before.detail);
            return Err(PowerError::AlreadyOff { outlet, detail });
        }
        self.seen_on = None;
        let mut receipt = CutReceipt::asked(&self.config.name, self.clock.now_ns());
        receipt.record(before);
        // A request that failed or hung may have been carried out all the same: look, always.
        receipt.record(self.run("off", self.timeout())?);
        self.wait_for(PowerState::Off, |seen| receipt.record(seen));
        Ok(receipt)
    }

    fn restore(&mut self) -> Result<Evidence, PowerError> {
        self.seen_on = None;
        let asked_at_ns = self.clock.now_ns();
        let mut last = self.run("on", self.timeout())?;
        let on = self.wait_for(PowerState::On, |seen| last = seen);
        self.seen_on = on.clone();
        on.ok_or_else(|| PowerError::NotRestored {
            outlet: self.config.name.clone(),
            waited_ms: (self.clock.now_ns() - asked_at_ns) / 1_000_000,
            detail: last.detail,
        })
    }
}

/// What a command said, on one line. Not its arguments: these may hold secrets.
fn detail(role: &str, output: &CommandOutput) -> String {
    let end = match &output.end {
        CommandEnd::Exit(code) => format!("exit status {code}"),
        CommandEnd::Signal(signal) => format!("ended by signal {signal}"),
        CommandEnd::TimedOut => "killed, its time was up".to_owned(),
        CommandEnd::Lost(why) => format!("its end is unknown ({why})"),
    };
    let said = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes));
    let line = said
        .join(" ")
        .split(|c: char| c.is_whitespace() || c.is_control())
        .fold(String::new(), |mut line, word| {
            if !line.is_empty() && !word.is_empty() {
                line.push(' ');
            }
            line + word
        });
    let short: String = line.chars().take(DETAIL_CHARS).collect();
    if short.is_empty() {
        format!("`{role}`: {end}")
    } else {
        format!("`{role}`: {end}: {short}")
    }
}

#[cfg(test)]
mod tests;
