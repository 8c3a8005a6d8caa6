//! Connections of those who have not yet said who they are: so many at once and no more, as each holds an open file. One more takes the
//! place of the oldest, so that those who say nothing keep out nobody who does.

use crate::node::{SharedNode, spawn};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use tokio::task::AbortHandle;

/// Those of one listener.
#[derive(Clone)]
pub(crate) struct Strangers(Rc<RefCell<Waiting>>);

struct Waiting {
    whose: &'static str,
    most: usize,
    last: u64,
    tasks: BTreeMap<u64, AbortHandle>,
    pushed_out: u64,
}

impl Strangers {
    /// At most so many, who want to be known as `whose`: clients, nodes.
    pub(crate) fn new(whose: &'static str, most: usize) -> Self {
        let tasks = BTreeMap::new();
        Self(Rc::new(RefCell::new(Waiting { whose, most, last: 0, tasks, pushed_out: 0 })))
    }

    /// Gets to know somebody, and then goes on with what came of it; unless too many others come before that has ended.
    pub(crate) fn meet<T: 'static>(
        &self,
        node: &SharedNode,
        greeting: impl Future<Output = T> + 'static,
        then: impl FnOnce(T) + 'static,
    ) {
        let waiting = &mut *self.0.borrow_mut();
        waiting.last += 1;
        let (number, strangers) = (waiting.last, self.clone());
        let task = spawn(node, async move {
            let met = greeting.await;
            strangers.0.borrow_mut().tasks.remove(&number);
            then(met);
        });
        waiting.tasks.insert(number, task.abort_handle());
        if waiting.tasks.len() > waiting.most
            && let Some((_, oldest)) = waiting.tasks.pop_first()
        {
            oldest.abort();
            waiting.pushed_out += 1;
            if waiting.pushed_out.is_power_of_two() {
                let Waiting { whose, most, pushed_out, .. } = waiting;
                tracing::warn!(
                    "{most} connections of {whose} were shaking hands, and the oldest was ended for another one ({pushed_out} so far)"
                );
            }
        }
    }
}
