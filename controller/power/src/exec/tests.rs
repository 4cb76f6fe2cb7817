use super::*;
use crate::testing::FakeClock;
use crate::{MonotonicClock, Processes};
use std::io;

const MS: u64 = 1_000_000;

/// Answers `status` from a function of the time since `off` was asked, if it was.
struct Script<F> {
    clock: FakeClock,
    off_at_ns: Option<u64>,
    calls: Vec<String>,
    status: F,
}

impl<F: FnMut(Option<u64>) -> CommandOutput> Commands for Script<F> {
    fn run(&mut self, argv: &[String], timeout: Duration) -> io::Result<CommandOutput> {
        self.calls.push(argv.join(" "));
        let now = self.clock.now_ns();
        match argv[0].as_str() {
            "missing" => return Err(io::ErrorKind::NotFound.into()),
            "off" => self.off_at_ns = Some(now),
            "hang" => {
                self.clock.sleep(timeout);
                return Ok(ended(CommandEnd::TimedOut, ""));
            }
            "on" => self.off_at_ns = None,
            _ => return Ok((self.status)(self.off_at_ns.map(|at| now - at))),
        }
        Ok(ended(CommandEnd::Exit(0), ""))
    }
}

fn ended(end: CommandEnd, stdout: &str) -> CommandOutput {
    CommandOutput {
        end,
        stdout: stdout.into(),
        stderr: Vec::new(),
        stdout_truncated: false,
    }
}

fn says(stdout: &str) -> CommandOutput {
    ended(CommandEnd::Exit(0), stdout)
}

fn config() -> ExecConfig {
    toml::from_str(
        r#"
        name = "pdu1"
        off = ["off", "3"]
        on = ["on", "3"]
        status = ["status", "3"]
        off_when = { word = "off" }
        on_when = { word = "on" }
        confirm_timeout_ms = 1000
        "#,
    )
    .unwrap()
}

fn outlet<F: FnMut(Option<u64>) -> CommandOutput>(
    config: ExecConfig,
    status: F,
) -> ExecOutlet<Script<F>, FakeClock> {
    let clock = FakeClock::default();
    let script = Script {
        clock: clock.clone(),
        off_at_ns: None,
        calls: Vec::new(),
        status,
    };
    ExecOutlet::new(config, script, clock).unwrap()
}

/// The state changes so long after it was asked off.
fn after(delay_ms: u64) -> impl FnMut(Option<u64>) -> CommandOutput {
    move |since| {
        says(if since.is_some_and(|ns| ns >= delay_ms * MS) {
            "is off\n"
        } else {
            "is ON\n"
        })
    }
}

#[test]
fn a_cut_is_confirmed_by_the_first_status_that_reads_off() {
    let mut outlet = outlet(config(), after(250));
    let receipt = outlet.cut().unwrap();
    let off = receipt.confirmed_off().unwrap();
    assert_eq!(off.by, EvidenceKind::OutletStatus);
    assert_eq!(off.at_ns - receipt.asked_at_ns(), 300 * MS);
    assert_eq!(
        receipt.evidence().last().unwrap().detail,
        "`status`: exit status 0: is off"
    );
}

#[test]
fn an_outlet_that_never_reports_off_is_not_confirmed() {
    let mut outlet = outlet(config(), |_| says("on"));
    let receipt = outlet.cut().unwrap();
    assert_eq!(receipt.confirmed_off(), None);
    assert!(
        receipt
            .inconclusive_reason()
            .unwrap()
            .contains("never seen off")
    );
    assert_eq!(
        outlet.clock.now_ns(),
        1000 * MS,
        "it waits as long as configured and no longer"
    );
}

#[test]
fn a_request_that_says_it_succeeded_is_not_a_confirmation() {
    let mut outlet = outlet(config(), |_| says("busy"));
    let receipt = outlet.cut().unwrap();
    assert!(
        receipt
            .evidence()
            .iter()
            .any(|seen| seen.kind == EvidenceKind::Request)
    );
    assert_eq!(receipt.confirmed_off(), None);
}

#[test]
fn an_outlet_that_is_off_before_the_cut_is_an_error_and_is_not_switched() {
    let mut outlet = outlet(config(), |_| says("off"));
    assert!(matches!(outlet.cut(), Err(PowerError::AlreadyOff { .. })));
    assert_eq!(outlet.commands.calls, ["status 3"]);
}

#[test]
fn an_outlet_seen_on_is_cut_without_asking_again() {
    let mut outlet = outlet(config(), after(0));
    assert_eq!(outlet.state().unwrap().state, PowerState::On);
    outlet.cut().unwrap();
    assert_eq!(outlet.commands.calls, ["status 3", "off 3", "status 3"]);
    outlet.restore().unwrap();
    outlet.cut().unwrap();
    assert_eq!(
        outlet.commands.calls[3..],
        ["on 3", "status 3", "off 3", "status 3"]
    );
}

#[test]
fn a_state_is_unknown_when_both_words_or_none_or_a_failed_command_says_it() {
    let config = config();
    for output in [
        says("on or off"),
        says("offline"),
        says(""),
        ended(CommandEnd::Exit(1), "off"),
        ended(CommandEnd::Signal(9), "off"),
        ended(CommandEnd::TimedOut, "off"),
        ended(CommandEnd::Lost("read".to_owned()), "off"),
        CommandOutput {
            stdout_truncated: true,
            ..says("off")
        },
        CommandOutput {
            stderr: b"off".to_vec(),
            ..says("")
        },
    ] {
        assert_eq!(
            config.read_state(&output),
            PowerState::Unknown,
            "{output:?}"
        );
    }
}

#[test]
fn the_words_of_common_tools_are_read() {
    let config = config();
    for (text, state) in [
        ("Chassis Power is off\n", PowerState::Off),
        ("{\"PowerState\":\"Off\"}", PowerState::Off),
        ("{\"POWER1\":\"ON\"}", PowerState::On),
        ("Outlet 3 is off.", PowerState::Off),
    ] {
        assert_eq!(config.read_state(&says(text)), state, "{text}");
    }
    let mut number = config;
    number.off_when.word = Some("2".to_owned());
    number.on_when.word = Some("1".to_owned());
    let snmp = says(".1.3.6.1.4.1.318.1.1.12.3.5.1.1.4.2 = INTEGER: 1");
    assert_eq!(
        number.read_state(&snmp),
        PowerState::On,
        "an OID is one word"
    );
}

#[test]
fn an_exit_status_alone_tells_the_state_where_configured() {
    let mut config = config();
    config.off_when = StateMatch {
        exit_code: Some(2),
        word: None,
    };
    config.on_when = StateMatch {
        exit_code: Some(0),
        word: None,
    };
    let state = |code| config.read_state(&ended(CommandEnd::Exit(code), "anything"));
    assert_eq!(
        [state(2), state(0), state(1)],
        [PowerState::Off, PowerState::On, PowerState::Unknown]
    );
}

#[test]
fn a_request_that_hangs_may_have_cut_and_is_followed_by_a_look() {
    let config = ExecConfig {
        off: vec!["hang".to_owned()],
        command_timeout_ms: 500,
        ..config()
    };
    let mut looks = 0;
    let mut outlet = outlet(config, move |_| {
        looks += 1;
        says(if looks == 1 { "on" } else { "off" })
    });
    let receipt = outlet.cut().unwrap();
    assert_eq!(receipt.confirmed_off().map(|off| off.at_ns), Some(500 * MS));
}

#[test]
fn a_request_that_never_started_is_an_error_that_names_the_program() {
    let config = ExecConfig {
        off: vec!["missing".to_owned(), "secret".to_owned()],
        ..config()
    };
    let error = outlet(config, |_| says("on"))
        .cut()
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("`missing`") && error.contains("pdu1"),
        "{error}"
    );
    assert!(!error.contains("secret"), "{error}");
}

#[test]
fn power_that_is_not_seen_on_again_is_an_error() {
    let mut outlet = outlet(config(), |_| says("off"));
    let error = outlet.restore().unwrap_err();
    assert!(
        matches!(
            error,
            PowerError::NotRestored {
                waited_ms: 1000,
                ..
            }
        ),
        "{error}"
    );
}

#[test]
fn a_configuration_that_could_confirm_anything_is_refused() {
    let refused = |change: fn(&mut ExecConfig)| {
        let mut config = config();
        change(&mut config);
        let outlet = ExecOutlet::new(config, Processes::new(MonotonicClock), MonotonicClock);
        match outlet {
            Err(error @ PowerError::Config { .. }) => error.to_string(),
            other => panic!("accepted: {other:?}"),
        }
    };
    assert!(refused(|c| c.status.clear()).contains("`status`"));
    assert!(refused(|c| c.off = vec![String::new()]).contains("`off`"));
    assert!(refused(|c| c.off_when = StateMatch::default()).contains("`off_when`"));
    assert!(refused(|c| c.on_when = c.off_when.clone()).contains("the same"));
    assert!(refused(|c| c.off_when.word = Some("is off".to_owned())).contains("`off_when.word`"));
    assert!(refused(|c| c.confirms_by = EvidenceKind::Request).contains("`confirms_by`"));
    assert!(refused(|c| c.poll_ms = 0).contains("`poll_ms`"));
    assert!(refused(|c| c.confirm_timeout_ms = u64::MAX).contains("`confirm_timeout_ms`"));
    assert!(refused(|c| c.name.clear()).contains("`name`"));
}

#[test]
fn an_unknown_key_is_refused() {
    let text = toml::to_string(&config()).unwrap();
    assert_eq!(toml::from_str::<ExecConfig>(&text).unwrap(), config());
    let error = toml::from_str::<ExecConfig>(&format!("wait_s = 1\n{text}")).unwrap_err();
    assert!(error.to_string().contains("wait_s"), "{error}");
}

#[test]
fn detail_is_one_bounded_line_without_control_characters() {
    let output = CommandOutput {
        stderr: vec![b'x'; 5000],
        ..says("a\n\x1b[31mb\t c\r\n")
    };
    let detail = detail("status", &output);
    assert!(
        detail.starts_with("`status`: exit status 0: a [31mb c xxx"),
        "{detail}"
    );
    assert!(
        detail.chars().count() < 250 && !detail.contains(char::is_control),
        "{detail}"
    );
}

#[test]
fn real_commands_switch_a_file_that_stands_for_an_outlet() {
    let dir = std::env::temp_dir().join(format!("plugpull-exec-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let state = dir.join("state");
    std::fs::write(&state, "on\n").unwrap();
    let path = state.to_str().unwrap();
    let sh = |script: String| vec!["sh".to_owned(), "-c".to_owned(), script];
    let config = ExecConfig {
        off: sh(format!("echo off > {path}")),
        on: sh(format!("echo on > {path}")),
        status: vec!["cat".to_owned(), path.to_owned()],
        confirm_timeout_ms: 20_000,
        ..config()
    };
    let mut outlet =
        ExecOutlet::new(config, Processes::new(MonotonicClock), MonotonicClock).unwrap();
    let receipt = outlet.cut().unwrap();
    let off = receipt.confirmed_off().unwrap();
    assert!(off.at_ns >= receipt.asked_at_ns());
    assert_eq!(outlet.restore().unwrap().state, PowerState::On);
    std::fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn the_example_of_the_documentation_is_a_valid_configuration() {
    let page = include_str!("../../CUTS.md");
    let example = page
        .split("```toml\n")
        .nth(1)
        .unwrap()
        .split("```")
        .next()
        .unwrap();
    toml::from_str::<ExecConfig>(example)
        .unwrap()
        .check()
        .unwrap();
}

#[test]
fn the_documentation_lists_every_kind_of_evidence_and_whether_it_confirms() {
    use EvidenceKind::*;
    let page = include_str!("../../CUTS.md");
    for kind in [
        Request,
        Person,
        OutletStatus,
        MeasuredLoad,
        ChassisStatus,
        UnsafeShutdownCount,
        DutSilent,
        BootIdentity,
    ] {
        let name = serde_json::to_string(&kind).unwrap().replace('"', "`");
        let confirms = if kind.confirms_off() { "yes" } else { "no" };
        assert!(
            page.contains(&format!("| {name} | {confirms} |")),
            "{name} {confirms}"
        );
        assert!(!kind.limits().is_empty());
    }
}
