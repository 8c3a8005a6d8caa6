//! `MERIDIAN.CONTEXT GET | RESET | SET token | MERGE token`: what a session must remember leaves it as a token, and another
//! session, on whichever node, goes on after it.

use super::job::Job;
use super::{Host, KeyspaceInfo, State, outcome};
use crate::resp::parse::Args;
use crate::token::{Carried, LENGTH_MAX, Refusal, Tokens};
use meridian_protocol::compose::{self, Fence, Role};
use meridian_protocol::machine::{Completion, Context, Cost, Outcome, Request, RequestId};

/// `CONTEXT GET`, while keyspaces tell what must be told.
#[derive(Debug)]
pub(super) struct Export {
    waiting: Vec<(RequestId, usize)>,
    /// By keyspace, the longest unused first: its fence as it was when it was asked, whether that is owed, and what it told.
    parts: Vec<Part>,
    failed: Option<(Outcome, usize)>,
    cost: Cost,
}

#[derive(Debug)]
struct Part {
    keyspace: usize,
    /// Whether this session, or one that it goes on after, has used it.
    used: bool,
    fence: Option<Fence>,
    owed: bool,
    context: Context,
}

/// `CONTEXT SET` and `MERGE`, while keyspaces take over what they are told.
#[derive(Debug)]
pub(super) struct Import {
    waiting: Vec<(RequestId, usize)>,
    services: Vec<(usize, bool)>,
    failed: Option<(Outcome, usize)>,
    cost: Cost,
}

const NO_SECRET: &str = "ERR MERIDIAN.CONTEXT needs a secret, without which anybody could make contexts: set [cluster] \
                         secret_file on all nodes";

impl State {
    /// `MERIDIAN.CONTEXT GET`.
    pub(super) fn on_context_get(&mut self, host: &mut impl Host) {
        if host.shared().tokens.is_none() {
            return self.error(NO_SECRET);
        }
        let mut parts = self.used_parts(host);
        // What sessions share may be of another connection of this client, as of a pool.
        for (keyspace, info) in host.keyspaces().iter().enumerate() {
            let known = parts.iter().any(|part| part.keyspace == keyspace);
            if !known && info.session != "connection" {
                let owed = info.engine().role().owes();
                parts.push(Part { keyspace, used: false, fence: None, owed, context: Context::default() });
            }
        }
        let ask = |part: &Part| (host.submit(self.id, part.keyspace, Request::Export), part.keyspace);
        let waiting: Vec<_> = parts.iter().map(ask).collect();
        let export = Export { waiting, parts, failed: None, cost: Cost::default() };
        if export.waiting.is_empty() {
            return self.tell(export, host);
        }
        self.run(Job::Export(export));
    }

    fn used_parts(&mut self, host: &mut impl Host) -> Vec<Part> {
        self.with_composed(host, |composed, services| {
            let fences = composed.unfenced();
            let part = |(keyspace, owed): (usize, bool)| {
                let fence = fences.iter().find(|(other, _)| *other == keyspace).map(|(_, fence)| *fence);
                Part { keyspace, used: true, fence, owed, context: Context::default() }
            };
            composed.used(services).into_iter().map(part).collect()
        })
    }

    /// A keyspace has told its context, or been fenced.
    pub(super) fn on_export(&mut self, mut export: Export, completion: Completion, host: &mut impl Host) {
        export.take(completion, self, host);
        if export.waiting.is_empty() {
            self.tell(export, host);
        } else {
            self.run(Job::Export(export));
        }
    }

    /// Answers with the token. If there is too much to tell, the keyspace that was not used for the longest is fenced first.
    fn tell(&mut self, mut export: Export, host: &mut impl Host) {
        self.cost = export.cost.clone();
        if let Some((outcome, keyspace)) = &export.failed {
            return self.error(&outcome::error(&host.keyspaces()[*keyspace], outcome, true));
        }
        let now_s = host.now().wall / 1_000_000;
        let carried = export.carried(host.keyspaces());
        let Some(tokens) = &host.shared().tokens else { return self.error(NO_SECRET) };
        let token = tokens.write(&carried, now_s);
        if token.len() <= LENGTH_MAX {
            return self.reply().bulk(token.as_bytes());
        }
        let long = |part: &&Part| {
            !part.context.0.is_empty() && host.keyspaces()[part.keyspace].engine().has_fences()
        };
        let Some(keyspace) = export.parts.iter().find(long).map(|part| part.keyspace) else {
            let count = carried.len();
            return self.error(&format!(
                "ERR the context of {count} keyspaces takes {} characters, and {LENGTH_MAX} is the most: use fewer in one session",
                token.len()
            ));
        };
        export.waiting.push((host.submit(self.id, keyspace, Request::Fence), keyspace));
        self.run(Job::Export(export));
    }

    /// `MERIDIAN.CONTEXT RESET`.
    pub(super) fn on_context_reset(&mut self, host: &mut impl Host) {
        self.forget(host);
        self.cost = Cost::default();
        self.reply().ok();
    }

    /// `MERIDIAN.CONTEXT SET | MERGE token`.
    pub(super) fn on_context_take(&mut self, anew: bool, args: Args<'_>, host: &mut impl Host) {
        let now_s = host.now().wall / 1_000_000;
        let Some(tokens) = host.shared().tokens.clone() else { return self.error(NO_SECRET) };
        let parts = match read(&tokens, &args[2], now_s, host) {
            Ok(parts) => parts,
            Err(refusal) => return self.error(&refusal),
        };
        if anew {
            self.forget(host);
        }
        for (keyspace, ..) in &parts {
            self.join_group(*keyspace, host);
        }
        let services = parts.iter().map(|(keyspace, owed, _)| (*keyspace, *owed)).collect();
        let ask = |(keyspace, _, context): (usize, bool, Context)| {
            (host.submit(self.id, keyspace, Request::Import(context)), keyspace)
        };
        let waiting: Vec<_> =
            parts.into_iter().filter(|(.., context)| !context.0.is_empty()).map(ask).collect();
        let import = Import { waiting, services, failed: None, cost: Cost::default() };
        if import.waiting.is_empty() {
            return self.go_on_after(import, host);
        }
        self.run(Job::Import(import));
    }

    /// A keyspace has taken over its context.
    pub(super) fn on_import(&mut self, mut import: Import, completion: Completion, host: &mut impl Host) {
        let Completion { request, outcome, cost } = completion;
        if let Some(place) = import.waiting.iter().position(|(waiting, _)| *waiting == request) {
            let (_, keyspace) = import.waiting.swap_remove(place);
            if outcome != Outcome::Done {
                import.failed = Some((outcome, keyspace));
            }
            import.cost = cost;
        }
        if import.waiting.is_empty() {
            self.go_on_after(import, host);
        } else {
            self.run(Job::Import(import));
        }
    }

    fn go_on_after(&mut self, import: Import, host: &mut impl Host) {
        self.cost = import.cost;
        // What was taken over in part is owed, too.
        self.with_composed(host, |composed, services| composed.import(services, import.services));
        match import.failed {
            None => self.reply().ok(),
            Some((outcome, keyspace)) => {
                self.error(&outcome::error(&host.keyspaces()[keyspace], &outcome, true));
            }
        }
    }

    /// Begins anew, as a session that has done nothing; what it shares with others stays with them.
    pub(super) fn forget(&mut self, host: &mut impl Host) {
        self.leave_group(host);
        self.composed = compose::Session::default();
        host.forget(self.id);
    }
}

impl Export {
    fn take(&mut self, completion: Completion, state: &mut State, host: &mut impl Host) {
        let Completion { request, outcome, cost } = completion;
        let Some(place) = self.waiting.iter().position(|(waiting, _)| *waiting == request) else { return };
        let (_, keyspace) = self.waiting.swap_remove(place);
        if (cost.rounds, cost.waited) >= (self.cost.rounds, self.cost.waited) {
            self.cost = Cost { witness: None, ..cost };
        }
        let Some(part) = self.parts.iter_mut().find(|part| part.keyspace == keyspace) else { return };
        let settles = host.keyspaces()[keyspace].engine().role() == Role::Settles;
        let is_fenced = match outcome {
            Outcome::Exported(context) => {
                part.context = context;
                // There is nothing that is not settled.
                settles
            }
            Outcome::Fenced => {
                part.context = Context::default();
                true
            }
            outcome => {
                self.failed = Some((outcome, keyspace));
                false
            }
        };
        if is_fenced {
            part.owed = false;
            if let Some(fence) = part.fence {
                state.with_composed(host, |composed, _| composed.on_fenced(keyspace, fence));
            }
        }
    }

    /// What must be told: of keyspaces that keep apart, only what their engines say; of what nobody has used, nothing.
    fn carried(&self, keyspaces: &[KeyspaceInfo]) -> Vec<Carried> {
        let tells = |part: &&Part| {
            let apart = keyspaces[part.keyspace].engine().role() == Role::Apart;
            !part.context.is_nothing() || part.used && !apart
        };
        let carried = |part: &Part| Carried {
            keyspace: keyspaces[part.keyspace].number,
            owed: part.owed,
            context: part.context.clone(),
        };
        self.parts.iter().filter(tells).map(carried).collect()
    }
}

/// What a token says of keyspaces, each by its index.
///
/// # Errors
/// Why it is refused, in words for the client.
fn read(
    tokens: &Tokens,
    token: &[u8],
    now_s: u64,
    host: &impl Host,
) -> Result<Vec<(usize, bool, Context)>, String> {
    let bad = |refusal: Refusal| format!("BADTOKEN {refusal}");
    let carried = tokens.read(token, now_s).map_err(bad)?;
    carried.into_iter().map(|carried| find(carried, host)).collect()
}

fn find(carried: Carried, host: &impl Host) -> Result<(usize, bool, Context), String> {
    let Carried { keyspace: number, owed, context } = carried;
    let index = host.keyspaces().iter().position(|info| info.number == number).ok_or_else(|| {
        format!(
            "BADTOKEN it names keyspace {number}, which is unknown here: give all nodes the same [[keyspace]]"
        )
    })?;
    let info = &host.keyspaces()[index];
    let (entries, expected) = (context.0.len(), info.engine().context_entries(host.regions()));
    if entries != 0 && entries != expected {
        return Err(format!(
            "BADTOKEN it says {entries} things of keyspace {number} '{}', where {} says {expected}: get another",
            info.name, info.engine
        ));
    }
    Ok((index, owed, context))
}
