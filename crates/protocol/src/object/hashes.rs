//! Commands on hashes.

use super::apply::{Live, Step, int, keep, remove, replace};
use super::strings::{integer, integer_text};
use super::{Data, Fault, Hash, ITEM_OVERHEAD, OBJECT_LIMIT, Object, Reply};
use bytes::Bytes;

pub(super) fn get(live: Live<'_>, field: &Bytes) -> Step {
    let value = hash(live)?.and_then(|hash| hash.get(field));
    keep(value.map_or(Reply::Nil, |value| Reply::Bulk(value.clone())))
}

pub(super) fn get_many(live: Live<'_>, fields: &[Bytes]) -> Step {
    let hash = hash(live)?;
    let values = fields.iter().map(|field| hash.and_then(|hash| hash.get(field)).cloned());
    keep(Reply::Options(values.collect()))
}

pub(super) fn exists(live: Live<'_>, field: &Bytes) -> Step {
    let found = hash(live)?.is_some_and(|hash| hash.get(field).is_some());
    keep(int(usize::from(found)))
}

pub(super) fn get_all(live: Live<'_>) -> Step {
    let pairs = hash(live)?.into_iter().flat_map(Hash::iter);
    keep(Reply::Pairs(pairs.flat_map(|(field, value)| [field.clone(), value.clone()]).collect()))
}

pub(super) fn keys(live: Live<'_>) -> Step {
    let pairs = hash(live)?.into_iter().flat_map(Hash::iter);
    keep(Reply::List(pairs.map(|(field, _)| field.clone()).collect()))
}

pub(super) fn values(live: Live<'_>) -> Step {
    let pairs = hash(live)?.into_iter().flat_map(Hash::iter);
    keep(Reply::List(pairs.map(|(_, value)| value.clone()).collect()))
}

pub(super) fn len(live: Live<'_>) -> Step {
    keep(int(hash(live)?.map_or(0, Hash::len)))
}

pub(super) fn set(live: Live<'_>, pairs: &[Bytes]) -> Step {
    let mut hash = hash(live)?.cloned().unwrap_or_default();
    let mut added = 0;
    for pair in pairs.chunks_exact(2) {
        added += usize::from(hash.insert(pair[0].clone(), pair[1].clone()));
        if hash.bytes() > OBJECT_LIMIT {
            return Err(Fault::TooLong);
        }
    }
    if hash.is_empty() {
        return keep(int(0));
    }
    replace(live, Data::Hash(hash), int(added))
}

pub(super) fn delete(live: Live<'_>, fields: &[Bytes]) -> Step {
    let Some(hash) = hash(live)? else { return keep(Reply::Int(0)) };
    let mut rest = hash.clone();
    let removed = fields.iter().filter(|field| rest.remove(field)).count();
    if removed == 0 {
        keep(Reply::Int(0))
    } else if rest.is_empty() {
        remove(int(removed))
    } else {
        replace(live, Data::Hash(rest), int(removed))
    }
}

pub(super) fn incr_by(live: Live<'_>, field: &Bytes, by: i64) -> Step {
    let mut hash = hash(live)?.cloned().unwrap_or_default();
    let old = match hash.get(field) {
        Some(value) => integer(value).ok_or(Fault::HashNotAnInteger)?,
        None => 0,
    };
    let new = old.checked_add(by).ok_or(Fault::Overflow)?;
    let text = integer_text(new);
    if hash.bytes() + field.len() + text.len() + ITEM_OVERHEAD > OBJECT_LIMIT {
        return Err(Fault::TooLong);
    }
    hash.insert(field.clone(), text);
    replace(live, Data::Hash(hash), Reply::Int(new))
}

fn hash(live: Live<'_>) -> Result<Option<&Hash>, Fault> {
    match live {
        None => Ok(None),
        Some(Object { data: Data::Hash(hash), .. }) => Ok(Some(hash)),
        Some(_) => Err(Fault::WrongType),
    }
}
