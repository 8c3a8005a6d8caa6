//! Commands on lists.

use super::apply::{Live, Step, clip, int, keep, remove as remove_key, replace};
use super::{Data, End, Fault, ITEM_OVERHEAD, List, OBJECT_LIMIT, Object, Reply};
use bytes::Bytes;

pub(super) fn len(live: Live<'_>) -> Step {
    keep(int(items(live)?.map_or(0, List::len)))
}

pub(super) fn range(live: Live<'_>, start: i64, stop: i64) -> Step {
    let found = items(live)?.and_then(|list| {
        let (first, last) = clip(start, stop, list.len())?;
        Some(list.range(first..=last).cloned().collect())
    });
    keep(Reply::List(found.unwrap_or_default()))
}

pub(super) fn index(live: Live<'_>, index: i64) -> Step {
    let item = items(live)?.and_then(|list| {
        let index = if index < 0 { (list.len() as i64).checked_add(index)? } else { index };
        list.get(usize::try_from(index).ok()?)
    });
    keep(item.map_or(Reply::Nil, |item| Reply::Bulk(item.clone())))
}

pub(super) fn push(live: Live<'_>, end: End, new: &[Bytes]) -> Step {
    let mut list = items(live)?.cloned().unwrap_or_default();
    let added: usize = new.iter().map(|item| item.len() + ITEM_OVERHEAD).sum();
    if list.bytes() + added > OBJECT_LIMIT {
        return Err(Fault::TooLong);
    }
    for item in new {
        match end {
            End::Head => list.push_front(item.clone()),
            End::Tail => list.push_back(item.clone()),
        }
    }
    let length = list.len();
    replace_or_remove(live, list, int(length))
}

pub(super) fn pop(live: Live<'_>, end: End, count: Option<u64>) -> Step {
    let Some(list) = items(live)? else { return keep(Reply::Nil) };
    if count == Some(0) {
        return keep(Reply::List(Vec::new()));
    }
    let mut rest = list.clone();
    let mut next = || match end {
        End::Head => rest.pop_front(),
        End::Tail => rest.pop_back(),
    };
    let reply = match count {
        None => next().map_or(Reply::Nil, Reply::Bulk),
        Some(count) => {
            let count = usize::try_from(count).unwrap_or(usize::MAX);
            Reply::List(std::iter::from_fn(next).take(count).collect())
        }
    };
    replace_or_remove(live, rest, reply)
}

pub(super) fn rotate(live: Live<'_>, from: End, to: End) -> Step {
    let Some(list) = items(live)? else { return keep(Reply::Nil) };
    let mut list = list.clone();
    let item = match from {
        End::Head => list.pop_front(),
        End::Tail => list.pop_back(),
    };
    let Some(item) = item else { return keep(Reply::Nil) };
    match to {
        End::Head => list.push_front(item.clone()),
        End::Tail => list.push_back(item.clone()),
    }
    replace(live, Data::List(list), Reply::Bulk(item))
}

pub(super) fn trim(live: Live<'_>, start: i64, stop: i64) -> Step {
    let Some(list) = items(live)? else { return keep(Reply::Ok) };
    let Some((first, stop)) = clip(start, stop, list.len()) else { return remove_key(Reply::Ok) };
    let kept = stop + 1 - first;
    let rest = if kept < list.len() / 2 {
        list.range(first..=stop).cloned().collect()
    } else {
        // The usual case, a list kept short, takes a few items off one end.
        let mut rest = list.clone();
        for _ in 0..first {
            rest.pop_front();
        }
        while rest.len() > kept {
            rest.pop_back();
        }
        rest
    };
    replace_or_remove(live, rest, Reply::Ok)
}

pub(super) fn remove(live: Live<'_>, count: i64, value: &Bytes) -> Step {
    let Some(list) = items(live)? else { return keep(Reply::Int(0)) };
    let limit = match count {
        0 => u64::MAX,
        _ => count.unsigned_abs(),
    };
    let mut removed = 0;
    let mut wanted = |item: &&Bytes| {
        let gone = *item == value && removed < limit;
        removed += u64::from(gone);
        !gone
    };
    let rest: List = if count < 0 {
        let mut backwards: Vec<Bytes> = list.iter().rev().filter(&mut wanted).cloned().collect();
        backwards.reverse();
        backwards.into_iter().collect()
    } else {
        list.iter().filter(&mut wanted).cloned().collect()
    };
    if removed == 0 {
        return keep(Reply::Int(0));
    }
    replace_or_remove(live, rest, Reply::Int(removed as i64))
}

fn items(live: Live<'_>) -> Result<Option<&List>, Fault> {
    match live {
        None => Ok(None),
        Some(Object { data: Data::List(list), .. }) => Ok(Some(list)),
        Some(_) => Err(Fault::WrongType),
    }
}

/// An empty list is an absent key.
fn replace_or_remove(live: Live<'_>, list: List, reply: Reply) -> Step {
    if list.is_empty() { remove_key(reply) } else { replace(live, Data::List(list), reply) }
}
