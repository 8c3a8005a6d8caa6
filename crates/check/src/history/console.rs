//! Jepsen's console logs of one register, as Porcupine's tests have them: lines
//! `INFO  jepsen.util - 0 :invoke :read nil` among others that say other things.

use super::Fault;
use super::calls::{CUT_SHORT, Entry, Pairing};
use super::edn::{Edn, Reader};
use super::{History, registers};

/// What every line of an operation has.
pub(super) const MARK: &str = "jepsen.util";

/// The operations of a log as a history.
pub(super) fn read(text: &str, faults: &mut Vec<Fault>) -> History {
    let mut pairing = Pairing::default();
    let mut operations = 0;
    for (index, line) in text.lines().enumerate() {
        let Some((_, said)) = line.split_once(MARK) else { continue };
        operations += 1;
        let result = match entry(index + 1, said) {
            Ok(Some(entry)) => pairing.add(entry),
            Ok(None) => {
                pairing.pass();
                Ok(())
            }
            Err(fault) => Err(fault),
        };
        faults.extend(result.err());
    }
    if operations == 0 && !text.trim_ascii().is_empty() {
        let reason = format!("no line of it has an operation, which would be marked {MARK}");
        faults.push(Fault::new(1, reason, "say with --format what it is"));
    }
    let mut calls = pairing.finish();
    calls.retain(|call| {
        let known = registers::knows(call);
        if !known {
            let reason = format!("invokes :{}, which no register knows", call.f);
            faults.push(Fault::new(call.line, reason, "a console log has :read, :write and :cas"));
        }
        known
    });
    History { events: registers::events(&calls, faults), ..History::default() }
}

/// `- 3 :ok :cas [1 2]`: process, how far it is, what, and the value. `None` if it is no client's.
fn entry(line: usize, said: &str) -> Result<Option<Entry<'_>>, Fault> {
    let said = said.trim_start().strip_prefix("- ").unwrap_or(said);
    let mut reader = Reader::new(said);
    let mut words = Vec::with_capacity(4);
    while words.len() < 4 {
        match reader.next() {
            Ok(Some(word)) => words.push(word),
            Ok(None) => break,
            Err(broken) => return Err(Fault::new(line, broken.reason, CUT_SHORT)),
        }
    }
    let mut words = words.into_iter();
    match (words.next(), words.next(), words.next(), words.next()) {
        (Some(Edn::Atom(process)), Some(Edn::Keyword(stage)), Some(Edn::Keyword(f)), Some(value))
            if process.parse::<i64>().is_ok() =>
        {
            Ok(Some(Entry { line, index: None, process, stage, f, key: None, value }))
        }
        (Some(Edn::Keyword(_)), ..) => Ok(None),
        _ => Err(Fault::new(line, "is no operation: process, :type, :f and value", CUT_SHORT)),
    }
}
