use super::*;

/// A small experiment without faults.
pub(crate) const SOUND: &str = r#"
name = "small"
paper = "Nobody"
figure = "figure 0"
title = "A test"
seconds = [1, 1]

[run.engine]
name = "gryff"

[run.place]
rtt = "paper"
regions = "3"

[run.workload.registers]
writes = 50.0
keys.conflict = 10.0

[run.clients.closed]
per_region = 2

[run.time]
warm_up_s = 1.0
measure_s = 10.0

[quick.set.time]
measure_s = 5.0

[quick.only]
writes = [90]

[[series]]
name = "gryff"

[[series]]
name = "without proxy"
set.engine.read_proxy = false

[[sweep]]
axis = "writes"
set = "workload.registers.writes"
values = [10, 90]

[[plot]]
title = "Reads"
shows = { line = { axis = "writes", p = 99 } }
op = "read"

[[claim]]
text = "Reads take one round trip"
where = "nowhere"
headline = true
published = 88.0
unit = "ms"
holds = { to = 90.0 }
value = { latency = { p = 99, op = "read", series = "gryff", at = { writes = 90 } } }
"#;

#[test]
fn runs_are_all_series_at_all_points() {
    let experiment = Experiment::read(SOUND).unwrap();
    let runs = experiment.runs(Scale::Full).unwrap();
    let told: Vec<String> = runs.iter().map(|run| format!("{}: {}", run.series, run.point)).collect();
    assert_eq!(
        told,
        ["gryff: writes 10", "gryff: writes 90", "without proxy: writes 10", "without proxy: writes 90"]
    );
    assert!(runs[0].run.engine.read_proxy && !runs[3].run.engine.read_proxy);
    let Workload::Registers(registers) = &runs[3].run.workload else { panic!("{:?}", runs[3].run.workload) };
    assert!((registers.writes - 90.0).abs() < 1e-9 && (registers.rmws).abs() < 1e-9);
    assert!((runs[0].run.time.measure_s - 10.0).abs() < 1e-9);
}

#[test]
fn quick_and_smoke_are_smaller() {
    let experiment = Experiment::read(SOUND).unwrap();
    let quick = experiment.runs(Scale::Quick).unwrap();
    assert_eq!(quick.len(), 2);
    assert!((quick[0].run.time.measure_s - 5.0).abs() < 1e-9);
    // Only what the headline is made of.
    let smoke = experiment.runs(Scale::Smoke).unwrap();
    assert_eq!(smoke.len(), 1);
    assert_eq!((smoke[0].series.as_str(), smoke[0].point.to_string().as_str()), ("gryff", "writes 90"));
    assert!((smoke[0].run.time.measure_s - 5.0 / 3.0).abs() < 1e-9);
}

#[test]
fn all_faults_are_told_at_once() {
    let broken = SOUND
        .replace("paper = \"Nobody\"", "papier = \"Nobody\"")
        .replace("per_region = 2", "per_region = 0")
        .replace("keys.conflict = 10.0", "keys.conflict = 110.0")
        .replace("p = 99 } }\nop", "p = 99, q = 1 } }\nop")
        .replace("series = \"gryff\", at", "series = \"griff\", at")
        .replace("[quick.only]", "[quick.none]");
    let faults = Experiment::read(&broken).unwrap_err().join("\n");
    for part in [
        "papier",
        "missing field `paper`",
        "[quick]: unknown key 'none'",
        "[[plot]] 1: unknown key 'shows.q'",
    ] {
        assert!(faults.contains(part), "{part} in {faults}");
    }
    let broken =
        broken.replace("papier", "paper").replace("[quick.none]", "[quick.only]").replace(", q = 1", "");
    let faults = Experiment::read(&broken).unwrap_err().join("\n");
    for part in [
        "there is no series 'griff'",
        "clients.closed.per_region must be above 0",
        "workload.registers.keys.conflict must be a share",
    ] {
        assert!(faults.contains(part), "{part} in {faults}");
    }
}

#[test]
fn names_that_lead_nowhere_are_faults() {
    for (old, new, fault) in [
        ("at = { writes = 90 }", "at = { reads = 90 }", "there is no axis 'reads'"),
        ("at = { writes = 90 }", "at = { writes = 50 }", "no run is at writes 50"),
        ("at = { writes = 90 }", "at = { writes = 10 }", "[quick] leaves out writes 10"),
        ("writes = [90]", "writes = [50]", "axis writes has no value 50"),
        ("name = \"without proxy\"", "name = \"gryff\"", "'gryff' is named twice"),
        ("published = 88.0", "published = 0.0", "nothing can be compared with 0"),
        ("holds = { to = 90.0 }", "holds = { }", "holds needs 'from' or 'to'"),
        ("rtt = \"paper\"", "rtt = \"papyrus\"", "no round-trip times are called 'papyrus'"),
        ("regions = \"3\"", "regions = \"4\"", "must be odd"),
        (
            "regions = \"3\"",
            "regions = \"3\"\npartitions = 2\nclient_nodes = 1",
            "place.client_nodes needs a node for each",
        ),
        ("regions = \"3\"", "regions = \"3\"\nclock_skew_ms = 1.0", "place.clock_skew_ms must be from 0"),
        (
            "name = \"gryff\"\n\n[run.place]",
            "name = \"gryff\"\nleader = \"mars\"\n\n[run.place]",
            "no region 'mars'",
        ),
    ] {
        let broken = SOUND.replace(old, new);
        assert_ne!(broken, SOUND, "{old}");
        let faults = Experiment::read(&broken).unwrap_err().join("\n");
        assert!(faults.contains(fault), "{fault} in {faults}");
    }
}

#[test]
fn an_engine_that_does_not_serve_the_workload_is_refused_by_name() {
    let runs = |text: &str| Experiment::read(text).unwrap().runs(Scale::Full).unwrap();
    let abd = SOUND.replace("name = \"gryff\"\n\n[run.place]", "name = \"abd\"\n\n[run.place]");
    assert!(runs(&abd)[0].run.engine().is_ok());
    let with_rmws = abd.replace("writes = 50.0", "writes = 50.0\nrmws = 1.0");
    assert!(runs(&with_rmws)[0].run.engine().unwrap_err().contains("abd does not serve"));
    let moving = SOUND.replace("writes = 50.0", "writes = 50.0\nremote = 25.0");
    assert!(runs(&moving)[0].run.engine().unwrap_err().contains("gryff does not serve"));
}

#[test]
fn an_axis_may_set_several_things() {
    let sweep = "[[sweep]]\naxis = \"error\"\nset = [\"place.clock_error_ms\", \"place.clock_skew_ms\"]\nvalues = [4]\n";
    let experiment = Experiment::read(&SOUND.replacen("[[plot]]", &format!("{sweep}\n[[plot]]"), 1)).unwrap();
    for planned in experiment.runs(Scale::Full).unwrap() {
        let place = planned.run.place;
        assert_eq!((place.clock_error_ms, place.clock_skew_ms), (Some(4.0), 4.0));
    }
}

#[test]
fn round_trips_can_be_all_the_same() {
    use meridian_protocol::topology::Region;
    let runs = Experiment::read(&SOUND.replace("rtt = \"paper\"", "rtt = \"same:0.2\"")).unwrap();
    let matrix = runs.runs(Scale::Full).unwrap()[0].run.place.matrix().unwrap();
    assert_eq!((matrix.rtt(Region(0), Region(2)), matrix.rtt(Region(1), Region(1))), (200, 200));
    let azure = SOUND
        .replace("rtt = \"paper\"", "rtt = \"azure\"")
        .replace("\"3\"", "\"westeurope,uksouth,japaneast\"");
    let matrix = Experiment::read(&azure).unwrap().runs(Scale::Full).unwrap()[0].run.place.matrix().unwrap();
    assert_eq!(matrix.rtt(Region(0), Region(1)), 11_000);
}
