//! Commands on strings.

use super::apply::{Change, Live, Step, clip, int, keep, remove, replace};
use super::{Condition, Data, Expiry, Extended, Fault, OBJECT_LIMIT, Object, Reply, Set, SetAnswer};
use bytes::{Bytes, BytesMut};
use std::fmt::Write as _;

pub(super) fn get(live: Live<'_>) -> Step {
    keep(value_or_nil(string(live)?))
}

pub(super) fn len(live: Live<'_>) -> Step {
    keep(int(string(live)?.map_or(0, Bytes::len)))
}

pub(super) fn get_range(live: Live<'_>, start: i64, end: i64) -> Step {
    let empty = Bytes::new();
    let value = string(live)?.unwrap_or(&empty);
    // An end that lies before the first byte counts as the first byte, unless both count from the end and are
    // in the wrong order.
    let end = if end < -(value.len() as i64) && !(start < 0 && start > end) { 0 } else { end };
    keep(Reply::Bulk(match clip(start, end, value.len()) {
        Some((first, last)) => value.slice(first..=last),
        None => Bytes::new(),
    }))
}

pub(super) fn set(live: Live<'_>, set: &Set, at_ms: u64) -> Step {
    let old = match set.answer {
        SetAnswer::Old => value_or_nil(string(live)?),
        SetAnswer::Ok | SetAnswer::Flag => Reply::Nil,
    };
    let met = match &set.condition {
        Condition::Always => true,
        Condition::IfAbsent => live.is_none(),
        Condition::IfPresent => live.is_some(),
        Condition::IfEqual(expected) => string(live)? == Some(expected),
    };
    if !met {
        return keep(match set.answer {
            SetAnswer::Ok | SetAnswer::Old => old,
            SetAnswer::Flag => Reply::Int(0),
        });
    }
    check_len(set.value.len())?;
    let expires_at = match set.expiry {
        Expiry::Never => None,
        Expiry::At(at) => Some(at),
        Expiry::Keep => live.and_then(|object| object.expires_at),
    };
    let object = Object::new(Data::Str(set.value.clone()), expires_at);
    let state = if object.expired(at_ms) { None } else { Some(object) };
    let reply = match set.answer {
        SetAnswer::Ok => Reply::Ok,
        SetAnswer::Old => old,
        SetAnswer::Flag => Reply::Int(1),
    };
    Ok((Change::To(state), reply))
}

pub(super) fn get_del(live: Live<'_>) -> Step {
    match string(live)? {
        Some(value) => remove(Reply::Bulk(value.clone())),
        None => keep(Reply::Nil),
    }
}

pub(super) fn get_ex(live: Live<'_>, expires_at: Option<u64>, at_ms: u64) -> Step {
    let Some(value) = string(live)? else { return keep(Reply::Nil) };
    let object = Object::new(Data::Str(value.clone()), expires_at);
    let state = if object.expired(at_ms) { None } else { Some(object) };
    Ok((Change::To(state), Reply::Bulk(value.clone())))
}

pub(super) fn delete_if_equal(live: Live<'_>, value: &Bytes) -> Step {
    if string(live)? == Some(value) { remove(Reply::Int(1)) } else { keep(Reply::Int(0)) }
}

pub(super) fn append(live: Live<'_>, value: &Bytes) -> Step {
    let old = string(live)?.map_or(&[][..], |old| old);
    let length = check_len(old.len().saturating_add(value.len()))?;
    let mut new = BytesMut::with_capacity(length);
    new.extend_from_slice(old);
    new.extend_from_slice(value);
    replace(live, Data::Str(new.freeze()), int(length))
}

pub(super) fn set_range(live: Live<'_>, offset: u64, value: &Bytes) -> Step {
    let old = string(live)?.map_or(&[][..], |old| old);
    if value.is_empty() {
        return keep(int(old.len()));
    }
    let offset = usize::try_from(offset).unwrap_or(usize::MAX);
    let end = check_len(offset.saturating_add(value.len()))?;
    let mut new = BytesMut::with_capacity(end.max(old.len()));
    new.extend_from_slice(old);
    new.resize(end.max(old.len()), 0);
    new[offset..end].copy_from_slice(value);
    let length = new.len();
    replace(live, Data::Str(new.freeze()), int(length))
}

pub(super) fn incr_by(live: Live<'_>, by: i64) -> Step {
    let old = match string(live)? {
        Some(value) => integer(value).ok_or(Fault::NotAnInteger)?,
        None => 0,
    };
    let new = old.checked_add(by).ok_or(Fault::Overflow)?;
    replace(live, Data::Str(integer_text(new)), Reply::Int(new))
}

pub(super) fn incr_by_float(live: Live<'_>, by: Extended) -> Step {
    let old = match string(live)? {
        Some(value) => Extended::parse(value).ok_or(Fault::NotAFloat)?,
        None => Extended::ZERO,
    };
    let new = old.plus(by).ok_or(Fault::NotFinite)?;
    let text = Bytes::from(new.to_string());
    replace(live, Data::Str(text.clone()), Reply::Bulk(text))
}

/// Reads an integer as strictly as Redis: no sign but a minus, no leading zeros, no spaces.
pub fn integer(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        digits => (false, digits),
    };
    match digits {
        [b'0'] if !negative => return Some(0),
        [b'1'..=b'9', ..] => {}
        _ => return None,
    }
    // Negative numbers reach one further than positive ones.
    digits.iter().try_fold(0_i64, |number, digit| {
        let digit = i64::from(digit.is_ascii_digit().then(|| digit - b'0')?);
        let shifted = number.checked_mul(10)?;
        if negative { shifted.checked_sub(digit) } else { shifted.checked_add(digit) }
    })
}

/// An integer as it is stored.
pub(super) fn integer_text(number: i64) -> Bytes {
    let mut text = BytesMut::with_capacity(20);
    // Writing to a growing buffer has no error.
    let _ = write!(text, "{number}");
    text.freeze()
}

fn string(live: Live<'_>) -> Result<Option<&Bytes>, Fault> {
    match live {
        None => Ok(None),
        Some(Object { data: Data::Str(value), .. }) => Ok(Some(value)),
        Some(_) => Err(Fault::WrongType),
    }
}

fn value_or_nil(value: Option<&Bytes>) -> Reply {
    value.map_or(Reply::Nil, |value| Reply::Bulk(value.clone()))
}

fn check_len(length: usize) -> Result<usize, Fault> {
    if length > OBJECT_LIMIT { Err(Fault::TooLong) } else { Ok(length) }
}
