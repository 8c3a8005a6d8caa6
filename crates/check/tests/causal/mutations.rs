//! Each kind of violation, planted into histories of a store that makes none, is found.

use crate::replicated::{Options, history, without_witness};
use meridian_check::{Model, Verdict, by_search, by_witness};
use meridian_protocol::history::{Event, Mode, Witness};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use Model::{Causal, CausalRot, Eventual, Mr, Mw, RealTimeCausal, Ryw, TccClosed, TccSpec, Wfr};

const SEEDS: u64 = 25;
const CONVERGENT: [Model; 3] = [RealTimeCausal, CausalRot, Causal];
const ALL: [Model; 9] = crate::FAMILY;

/// Plants into `SEEDS` histories and demands that each model sees it. `plant` says what to do to which two
/// operations; whether they fit is its own to say.
fn planted(
    kind: &str,
    models: &[Model],
    witnessed: bool,
    plant: impl Fn(&mut Vec<Event>, usize, usize) -> bool,
) {
    let mut caught = 0;
    for seed in 0..SEEDS {
        let options = Options { true_time: true, quiet_end: models == [Eventual], ..Options::default() };
        let valid = history(seed, &options);
        let valid = if witnessed { valid } else { without_witness(&valid) };
        let judge = if witnessed { by_witness } else { by_search };
        for model in models {
            assert_eq!(judge(*model, &valid).verdict, Verdict::Holds, "{kind}: seed {seed}, {model} before");
        }
        let mut random = Pcg64Mcg::seed_from_u64(seed);
        let events = (0..2_000_000).find_map(|_| {
            let (a, b) = (random.random_range(0..valid.len()), random.random_range(0..valid.len()));
            // Cheap to refuse: most pairs have nothing to do with each other.
            if a == b || valid[a].invoke >= valid[b].invoke {
                return None;
            }
            let mut events = valid.clone();
            plant(&mut events, a, b).then_some(events)
        });
        let events = events.unwrap_or_else(|| panic!("{kind}: seed {seed} has no two operations that fit"));
        for model in models {
            let judgement = judge(*model, &events);
            assert_eq!(
                judgement.verdict,
                Verdict::Violated,
                "{kind}: seed {seed}, {model}: {}",
                judgement.reason
            );
            assert!(judgement.reason.contains("op "), "the reason names operations: {}", judgement.reason);
            caught += 1;
        }
    }
    println!("{kind}: {caught} of {} caught", SEEDS as usize * models.len());
}

fn both_ways(kind: &str, models: &[Model], plant: impl Fn(&mut Vec<Event>, usize, usize) -> bool) {
    for witnessed in [false, true] {
        planted(kind, models, witnessed, &plant);
    }
}

fn is_put(event: &Event) -> bool {
    event.ops[0].mode == Mode::Write
}

fn is_get(event: &Event) -> bool {
    event.ops.len() == 1 && !is_put(event)
}

fn key(event: &Event) -> &str {
    &event.ops[0].key
}

/// Who wrote what access number `access` of the read saw.
fn source(events: &[Event], read: usize, access: usize) -> Option<usize> {
    let access = &events[read].ops[access];
    access.value.as_ref()?;
    events.iter().position(|event| is_put(event) && event.ops[0].value == access.value)
}

/// Makes the read see another put's value, with its version, or none.
fn see(events: &mut [Event], read: usize, access: usize, put: Option<usize>) {
    let version = put.and_then(|put| match events[put].witness {
        Some(Witness::Put { at, .. }) => Some(at),
        _ => None,
    });
    events[read].ops[access].value = put.and_then(|put| events[put].ops[0].value.clone());
    if let Some(Witness::Got { at, sv }) = &mut events[read].witness {
        at[access] = version;
        // It is the order that is to be caught, and not the vectors.
        sv.clear();
    }
}

fn forget_vectors(events: &mut [Event]) {
    for event in events {
        match &mut event.witness {
            Some(Witness::Put { vc, .. }) => vc.clear(),
            Some(Witness::Got { sv, .. }) => sv.clear(),
            _ => {}
        }
    }
}

/// An earlier operation of the same session for which `fits` is true.
fn earlier(events: &[Event], op: usize, fits: impl Fn(usize) -> bool) -> Option<usize> {
    let same = |other: &usize| {
        events[*other].session == events[op].session && events[*other].invoke < events[op].invoke
    };
    (0..events.len()).filter(same).find(|other| fits(*other))
}

#[test]
fn a_stale_read_of_an_own_write() {
    both_ways(
        "own write unseen",
        &[RealTimeCausal, CausalRot, Causal, TccClosed, TccSpec, Ryw],
        |events, put, read| {
            let fits = is_put(&events[put])
                && is_get(&events[read])
                && events[put].session == events[read].session
                && key(&events[put]) == key(&events[read]);
            if fits {
                see(events, read, 0, None);
            }
            fits
        },
    );
}

#[test]
fn a_read_that_goes_back() {
    let models = [RealTimeCausal, CausalRot, Causal, TccClosed, TccSpec, Wfr, Mw, Mr];
    both_ways("reads not monotonic", &models, |events, first, second| {
        let fits = is_get(&events[first])
            && is_get(&events[second])
            && events[first].session == events[second].session
            && key(&events[first]) == key(&events[second])
            && events[first].ops[0].value.is_some();
        if fits {
            see(events, second, 0, None);
        }
        fits
    });
}

/// Two reads of one key in one session of which the first saw the later of two puts: now the second sees the
/// earlier one, which `before` finds for the later one.
fn swapped(
    events: &mut [Event],
    reads: (usize, usize),
    before: impl Fn(&[Event], usize) -> Option<usize>,
) -> bool {
    let (first, second) = reads;
    let fits = is_get(&events[first])
        && is_get(&events[second])
        && events[first].session == events[second].session
        && key(&events[first]) == key(&events[second]);
    let later = if fits { source(events, first, 0) } else { None };
    let Some(earlier) = later.and_then(|later| before(events, later)) else { return false };
    see(events, second, 0, Some(earlier));
    true
}

#[test]
fn writes_of_a_session_in_another_order() {
    both_ways(
        "writes not monotonic",
        &[RealTimeCausal, CausalRot, Causal, TccClosed, TccSpec, Mw],
        |events, a, b| {
            swapped(events, (a, b), |events, later| {
                earlier(events, later, |put| is_put(&events[put]) && key(&events[put]) == key(&events[later]))
            })
        },
    );
}

#[test]
fn a_write_before_what_it_follows() {
    both_ways(
        "writes before reads",
        &[RealTimeCausal, CausalRot, Causal, TccClosed, TccSpec, Wfr],
        |events, a, b| {
            swapped(events, (a, b), |events, later| {
                let read = earlier(events, later, |read| {
                    is_get(&events[read])
                        && key(&events[read]) == key(&events[later])
                        && source(events, read, 0).is_some()
                })?;
                source(events, read, 0)
            })
        },
    );
}

#[test]
fn writes_in_another_order_than_real_time() {
    both_ways("real time", &[RealTimeCausal], |events, a, b| {
        swapped(events, (a, b), |events, later| {
            (0..events.len()).find(|put| {
                is_put(&events[*put])
                    && key(&events[*put]) == key(&events[later])
                    && events[*put].returned.unwrap() < events[later].invoke
            })
        })
    });
}

#[test]
fn a_transaction_of_two_snapshots() {
    both_ways("two snapshots", &[RealTimeCausal, CausalRot], |events, put, transaction| {
        if events[transaction].ops.len() < 2 || !is_put(&events[put]) {
            return false;
        }
        let of_put = events[transaction].ops.iter().position(|access| access.key == key(&events[put]));
        let Some(missed) = of_put else { return false };
        let follows = |seen: usize| {
            events[seen].session == events[put].session && events[seen].invoke > events[put].invoke
        };
        let fits = (0..events[transaction].ops.len())
            .filter(|access| *access != missed)
            .any(|access| source(events, transaction, access).is_some_and(follows));
        if fits {
            see(events, transaction, missed, None);
        }
        fits
    });
}

#[test]
fn replication_out_of_order() {
    let models = [RealTimeCausal, CausalRot, Causal, TccClosed];
    both_ways("out of order", &models, |events, first, second| {
        let fits = is_get(&events[first])
            && is_get(&events[second])
            && events[first].session == events[second].session;
        let seen = if fits { source(events, first, 0) } else { None };
        let fits = seen.is_some_and(|seen| {
            earlier(events, seen, |put| is_put(&events[put]) && key(&events[put]) == key(&events[second]))
                .is_some()
        });
        if fits {
            see(events, second, 0, None);
        }
        fits
    });
}

#[test]
fn a_lost_dependency() {
    let models = [RealTimeCausal, CausalRot, Causal, TccClosed];
    both_ways("dependency lost", &models, |events, first, second| {
        let fits = is_get(&events[first])
            && is_get(&events[second])
            && events[first].session == events[second].session;
        let seen = if fits { source(events, first, 0) } else { None };
        let fits = seen.is_some_and(|seen| {
            let read = |read: usize| {
                is_get(&events[read])
                    && key(&events[read]) == key(&events[second])
                    && events[read].ops[0].value.is_some()
            };
            earlier(events, seen, read).is_some()
        });
        if fits {
            see(events, second, 0, None);
        }
        fits
    });
}

#[test]
fn a_read_of_what_its_own_session_writes_later() {
    let models = [RealTimeCausal, CausalRot, Causal, TccClosed, TccSpec, Wfr];
    both_ways("a cycle of causes", &models, |events, read, put| {
        let fits = is_get(&events[read])
            && is_put(&events[put])
            && events[read].session == events[put].session
            && key(&events[read]) == key(&events[put]);
        if fits {
            see(events, read, 0, Some(put));
        }
        fits
    });
}

#[test]
fn a_value_of_nobody() {
    for models in [&ALL[..], &[Eventual]] {
        planted("thin air", models, false, |events, _, read| {
            let fits = is_get(&events[read]);
            if fits {
                events[read].ops[0].value = Some("nobody's".to_string());
            }
            fits
        });
    }
}

#[test]
fn last_reads_that_differ() {
    planted("divergence", &[Eventual], false, |events, put, read| {
        let fits = is_put(&events[put])
            && is_get(&events[read])
            && events[read].invoke > i64::from(u32::MAX) / 2
            && key(&events[put]) == key(&events[read])
            && events[put].ops[0].value != events[read].ops[0].value;
        if fits {
            see(events, read, 0, Some(put));
        }
        fits
    });
}

#[test]
fn a_version_used_twice() {
    planted("version twice", &ALL, true, |events, a, b| {
        let fits = is_put(&events[a]) && is_put(&events[b]);
        if fits {
            events[a].witness = events[b].witness.clone();
        }
        fits
    });
}

#[test]
fn a_version_of_another_value() {
    planted("version of another value", &ALL, true, |events, put, read| {
        let fits = is_put(&events[put])
            && is_get(&events[read])
            && key(&events[put]) == key(&events[read])
            && events[put].ops[0].value != events[read].ops[0].value;
        if fits {
            let value = events[read].ops[0].value.clone();
            see(events, read, 0, Some(put));
            events[read].ops[0].value = value;
        }
        fits
    });
}

#[test]
fn a_version_below_what_it_follows() {
    planted(
        "version too low",
        &[RealTimeCausal, CausalRot, Causal, TccClosed, TccSpec, Mw],
        true,
        |events, a, b| {
            if !is_put(&events[a]) || !is_put(&events[b]) || events[a].session != events[b].session {
                return false;
            }
            forget_vectors(events);
            // The two change places, with all who saw them.
            let (Some(Witness::Put { at: low, .. }), Some(Witness::Put { at: high, .. })) =
                (events[a].witness.clone(), events[b].witness.clone())
            else {
                return false;
            };
            let swap = |version: &mut (u64, u32, u32)| {
                *version = if *version == low {
                    high
                } else if *version == high {
                    low
                } else {
                    *version
                };
            };
            for event in events {
                match &mut event.witness {
                    Some(Witness::Put { at, .. }) => swap(at),
                    Some(Witness::Got { at, .. }) => at.iter_mut().flatten().for_each(swap),
                    _ => {}
                }
            }
            true
        },
    );
}

#[test]
fn a_vector_that_misses_a_dependency() {
    planted("vector too low", &ALL, true, |events, read, put| {
        if !is_get(&events[read]) || !is_put(&events[put]) || events[read].session != events[put].session {
            return false;
        }
        let Some(Witness::Got { at, .. }) = &events[read].witness else { return false };
        let Some((ts, region, _)) = at[0] else { return false };
        let Some(Witness::Put { at, vc }) = &mut events[put].witness else { return false };
        vc[region as usize] = ts - 1;
        at.1 != region
    });
}

#[test]
fn a_vector_that_denies_its_own_version() {
    planted("vector and version", &ALL, true, |events, _, put| {
        let Some(Witness::Put { at, vc }) = &mut events[put].witness else { return false };
        vc[at.1 as usize] += 1;
        true
    });
}

#[test]
fn a_snapshot_that_goes_back() {
    planted("snapshot goes back", &ALL, true, |events, first, second| {
        if events[first].session != events[second].session {
            return false;
        }
        let Some(Witness::Got { sv: before, .. }) = events[first].witness.clone() else { return false };
        let Some(Witness::Got { sv, .. }) = &mut events[second].witness else { return false };
        sv[0] = before[0].saturating_sub(1);
        before[0] > 0
    });
}

#[test]
fn a_snapshot_that_covers_more_than_was_returned() {
    planted("stale in its snapshot", &ALL, true, |events, read, put| {
        let fits = is_get(&events[read]) && is_put(&events[put]) && key(&events[read]) == key(&events[put]);
        let Some(Witness::Put { vc, .. }) = events[put].witness.clone() else { return false };
        let Some(Witness::Got { sv, .. }) = &mut events[read].witness else { return false };
        sv.iter_mut().zip(vc).for_each(|(entry, other)| *entry = (*entry).max(other));
        fits
    });
}

#[test]
fn a_snapshot_that_does_not_cover_what_was_returned() {
    planted("newer than its snapshot", &ALL, true, |events, _, read| {
        let Some(Witness::Got { at, sv }) = &mut events[read].witness else { return false };
        let Some((ts, region, _)) = at[0] else { return false };
        sv[region as usize] = ts - 1;
        true
    });
}

#[test]
fn convergent_models_see_what_none_of_the_guarantees_does() {
    // A message: only causal consistency knows of those.
    both_ways("message", &CONVERGENT, |events, put, read| {
        let fits = is_put(&events[put]) && is_get(&events[read]) && key(&events[put]) == key(&events[read]);
        if fits {
            let id = events[put].id;
            events[read].after.push(id);
            see(events, read, 0, None);
        }
        fits
    });
}
