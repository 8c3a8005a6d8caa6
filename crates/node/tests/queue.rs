//! Taking items off lists and waiting for them, with several clients of one node, told by the bytes that go in and out.

mod common;

use common::{FakeHost, TestClient};
use meridian_protocol::machine::{Outcome, Request};
use meridian_protocol::object::{Action, Command};

/// Clients of one node. Completions and calls are delivered as they come.
struct Room {
    host: FakeHost,
    clients: Vec<TestClient>,
}

impl Room {
    fn new(clients: usize) -> Self {
        let mut host = FakeHost::of_all_models();
        let clients = (0..clients).map(|_| host.connect()).collect();
        Self { host, clients }
    }

    /// Sends a line without asking what comes of it.
    fn send(&mut self, client: usize, line: &str) {
        self.clients[client].send(format!("{line}\r\n").as_bytes(), &mut self.host);
        self.pump();
    }

    /// What a client was answered since the last call.
    fn took(&mut self, client: usize) -> String {
        let bytes = self.clients[client].take();
        String::from_utf8(bytes.to_vec()).expect("answers of these tests are text").replace("\r\n", "|")
    }

    fn say(&mut self, client: usize, line: &str) -> String {
        self.send(client, line);
        self.took(client)
    }

    /// Lets all happen that can.
    fn pump(&mut self) {
        loop {
            if !self.host.pending.is_empty() {
                let (session, completion) = self.host.pending.remove(0);
                let client = self.clients.iter_mut().find(|client| client.session.id() == session);
                if let Some(client) = client {
                    client.session.on_completion(completion, &mut self.host);
                }
            } else if let Some(session) = self.host.next_called() {
                let client = self.clients.iter_mut().find(|client| client.session.id() == session);
                client.expect("whoever has gone is in no line").session.on_called(&mut self.host);
            } else {
                return;
            }
        }
    }

    fn pass(&mut self, micros: u64) {
        self.host.pass(micros);
        self.pump();
    }

    fn close(&mut self, client: usize) {
        self.clients[client].session.on_closed(&mut self.host);
        self.pump();
    }

    fn script(&mut self, lines: &[(usize, &str, &str)]) {
        for (client, line, answer) in lines {
            assert_eq!(self.say(*client, line), *answer, "client {client}: {line}");
        }
    }
}

#[test]
fn items_are_moved_in_every_keyspace_that_serves_rmws() {
    for database in ["0", "1", "2", "5"] {
        let mut room = Room::new(1);
        room.say(0, &format!("SELECT {database}"));
        room.script(&[
            (0, "RPUSH a x y z", ":3|"),
            (0, "LMOVE a b LEFT RIGHT", "$1|x|"),
            (0, "lmove a b right left", "$1|z|"),
            (0, "RPOPLPUSH b a", "$1|x|"),
            (0, "LRANGE a 0 -1", "*2|$1|x|$1|y|"),
            (0, "LRANGE b 0 -1", "*1|$1|z|"),
            (0, "LMOVE a a LEFT RIGHT", "$1|x|"),
            (0, "LRANGE a 0 -1", "*2|$1|y|$1|x|"),
            (0, "LMOVE none b LEFT LEFT", "$-1|"),
            (0, "SET s v", "+OK|"),
            (0, "LMOVE a s LEFT LEFT", "-WRONGTYPE Operation against a key holding the wrong kind of value|"),
            (0, "LMOVE s a LEFT LEFT", "-WRONGTYPE Operation against a key holding the wrong kind of value|"),
            (0, "LRANGE a 0 -1", "*2|$1|y|$1|x|"),
            (0, "LMOVE a b UP LEFT", "-ERR syntax error|"),
            (0, "BLPOP none a 0", "*2|$1|a|$1|y|"),
            (0, "BRPOP a none 0", "*2|$1|a|$1|x|"),
            (0, "BLMOVE b a LEFT LEFT 0", "$1|z|"),
            (0, "BRPOPLPUSH a a 0", "$1|z|"),
            (0, "EXISTS b", ":0|"),
            (0, "BLPOP s 0", "-WRONGTYPE Operation against a key holding the wrong kind of value|"),
        ]);
    }
}

#[test]
fn registers_and_causal_keyspaces_refuse_by_name() {
    let mut room = Room::new(1);
    for database in ["3", "4", "7"] {
        room.say(0, &format!("SELECT {database}"));
        for line in ["LMOVE a b LEFT LEFT", "BLPOP a 0", "BLMOVE a b LEFT LEFT 0"] {
            let answer = room.say(0, line);
            assert!(answer.contains("depends on the value that it changes"), "{line}: {answer}");
        }
    }
}

#[test]
fn first_come_is_first_served() {
    let mut room = Room::new(4);
    for client in 0..3 {
        assert_eq!(room.say(client, "BLPOP q 0"), "");
    }
    room.host.take_asked();
    assert_eq!(room.say(3, "RPUSH q x y"), ":2|");
    assert_eq!([0, 1, 2].map(|client| room.took(client)), ["*2|$1|q|$1|x|", "*2|$1|q|$1|y|", ""]);
    let asked = room.host.take_asked().len();
    assert!(asked <= 4, "a push, two pops and at most one in vain, not {asked}");
    // Whoever comes now is behind the one who waits.
    assert_eq!(room.say(0, "BLPOP q 0"), "");
    assert_eq!(room.host.take_asked(), [], "nor does who comes while another waits");
    room.say(3, "RPUSH q z");
    assert_eq!([room.took(2), room.took(0)], ["*2|$1|q|$1|z|", ""]);
}

#[test]
fn who_waits_for_several_lists_takes_from_the_one_that_has_an_item() {
    let mut room = Room::new(3);
    room.say(0, "BLPOP a b 0");
    room.say(1, "BRPOP b 0");
    room.say(2, "SET a v");
    assert_eq!(room.took(0), "", "what is no list is not waited for");
    room.say(2, "RPUSH b x");
    assert_eq!([room.took(0), room.took(1)], ["*2|$1|b|$1|x|", ""]);
    room.say(2, "LPUSH b y");
    assert_eq!(room.took(1), "*2|$1|b|$1|y|");
}

#[test]
fn a_destination_that_is_no_list_ends_the_wait() {
    for database in ["0", "2"] {
        let mut room = Room::new(2);
        room.script(&[
            (0, &format!("SELECT {database}"), "+OK|"),
            (1, &format!("SELECT {database}"), "+OK|"),
        ]);
        room.say(0, "BLMOVE q s LEFT LEFT 0");
        room.say(1, "SET s v");
        assert_eq!(room.took(0), "");
        room.say(1, "RPUSH q x");
        assert!(room.took(0).starts_with("-WRONGTYPE "), "{database}");
        assert_eq!(room.say(1, "LRANGE q 0 -1"), "*1|$1|x|", "{database}");
    }
}

#[test]
fn waiting_ends_in_time() {
    let mut room = Room::new(2);
    room.say(0, "BLPOP q 0.5");
    room.say(1, "HELLO 3");
    room.say(1, "BLMOVE q r LEFT LEFT 1");
    room.pass(499_999);
    assert_eq!(room.took(0), "");
    room.pass(1);
    assert_eq!([room.took(0), room.took(1)], ["*-1|", ""]);
    room.pass(500_000);
    assert_eq!(room.took(1), "_|");
    assert_eq!(room.say(0, "RPUSH q x"), ":1|");
    assert_eq!(room.say(0, "LLEN q"), ":1|", "nobody waits any more");
    for (line, error) in [
        ("BLPOP q x", "-ERR timeout is not a float or out of range|"),
        ("BLPOP q -1", "-ERR timeout is negative|"),
        ("BLPOP q", "-ERR wrong number of arguments for 'blpop' command|"),
    ] {
        assert_eq!(room.say(0, line), error, "{line}");
    }
}

#[test]
fn commands_wait_behind_one_that_waits() {
    let mut room = Room::new(2);
    room.send(0, "BLPOP q 0\r\nPING\r\nBLPOP q 0\r\nECHO end");
    assert_eq!(room.took(0), "");
    room.say(1, "RPUSH q x");
    assert_eq!(room.took(0), "*2|$1|q|$1|x|+PONG|");
    room.say(1, "RPUSH q y");
    assert_eq!(room.took(0), "*2|$1|q|$1|y|$3|end|");
}

#[test]
fn who_leaves_passes_the_call_on() {
    let mut room = Room::new(4);
    for client in 0..3 {
        room.say(client, "BLPOP q 0");
    }
    room.close(0);
    // The second says that it sends nothing more: nobody reads what it would be given.
    room.clients[1].session.on_input_ended(&mut room.host);
    assert!(room.clients[1].session.closing());
    room.close(1);
    room.say(3, "RPUSH q x");
    assert_eq!([0, 1, 2].map(|client| room.took(client)), ["", "", "*2|$1|q|$1|x|"]);
}

#[test]
fn a_call_to_one_who_dies_in_its_try_is_passed_on() {
    let mut room = Room::new(3);
    room.say(0, "BLPOP q 0");
    room.say(1, "BLPOP q 0");
    // The first is called, and its try is lost with its connection.
    room.host.fail = Some(|request| {
        let pops = matches!(request, Request::Act { action: Action::Command(Command::ListPop(..)), .. });
        pops.then_some(Outcome::NoQuorum)
    });
    room.clients[2].send(b"RPUSH q x\r\n", &mut room.host);
    let called = room.host.next_called();
    assert_eq!(called, Some(room.clients[0].session.id()));
    room.clients[0].session.on_called(&mut room.host);
    room.host.fail = None;
    room.close(0);
    assert_eq!(room.took(1), "*2|$1|q|$1|x|");
}

#[test]
fn others_see_who_waits_and_can_end_it() {
    let mut room = Room::new(3);
    room.say(0, "BLPOP q 0");
    room.say(1, "BLPOP q 0");
    assert!(room.say(2, "INFO clients").contains("blocked_clients:2"));
    assert!(room.say(2, "CLIENT LIST").contains("flags=b"));
    room.script(&[
        (2, "CLIENT UNBLOCK 1", ":1|"),
        (2, "CLIENT UNBLOCK 1", ":0|"),
        (2, "CLIENT UNBLOCK 2 ERROR", ":1|"),
        (2, "CLIENT UNBLOCK 99", ":0|"),
        (2, "CLIENT UNBLOCK 1 NOW", "-ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR|"),
    ]);
    assert_eq!([room.took(0), room.took(1)], ["*-1|", "-UNBLOCKED client unblocked via CLIENT UNBLOCK|"]);
    assert!(room.say(2, "INFO clients").contains("blocked_clients:0"));
    assert_eq!(room.say(0, "PING"), "+PONG|");
}

#[test]
fn inside_a_transaction_nothing_waits() {
    let mut room = Room::new(1);
    room.script(&[
        (0, "MULTI", "+OK|"),
        (0, "BLPOP q 0", "+QUEUED|"),
        (0, "RPUSH q x y", "+QUEUED|"),
        (0, "BRPOP q 0", "+QUEUED|"),
        (0, "LMOVE q q LEFT RIGHT", "+QUEUED|"),
        (0, "EXEC", "*4|*-1|:2|*2|$1|q|$1|y|$1|x|"),
        (0, "MULTI", "+OK|"),
    ]);
    assert!(room.say(0, "LMOVE q r LEFT LEFT").starts_with("-CROSSSLOT "));
    assert!(room.say(0, "BLPOP q r 0").contains("one key"));
    assert!(room.say(0, "EXEC").starts_with("-EXECABORT "));
    room.script(&[
        (0, "SELECT 2", "+OK|"),
        (0, "MULTI", "+OK|"),
        (0, "RPUSH q x", "+QUEUED|"),
        (0, "BLMOVE q r LEFT LEFT 0", "+QUEUED|"),
        (0, "LLEN r", "+QUEUED|"),
        (0, "EXEC", "*3|:1|$1|x|:1|"),
        (0, "MERIDIAN.BEGIN", "+OK|"),
        (0, "BLPOP q r 0", "*2|$1|r|$1|x|"),
        (0, "BLPOP q r 0", "*-1|"),
        (0, "MERIDIAN.COMMIT", "+OK|"),
    ]);
}

#[test]
fn a_move_that_is_cut_short_says_where_its_item_is() {
    let mut room = Room::new(1);
    room.say(0, "RPUSH a x");
    room.host.fail = Some(|request| {
        let brings =
            matches!(request, Request::Act { action: Action::Command(Command::ListReceive(..)), .. });
        brings.then_some(Outcome::NoQuorum)
    });
    let answer = room.say(0, "LMOVE a b LEFT LEFT");
    assert!(answer.starts_with("-UNKNOWNOUTCOME ") && answer.contains("has left 'a'"), "{answer}");
    room.host.fail = None;
    room.script(&[
        (0, "EXISTS a b", ":0|"),
        (0, "RPUSH a y", ":1|"),
        // Whoever moves next brings what was left.
        (0, "LMOVE a b LEFT RIGHT", "$1|y|"),
        (0, "LRANGE b 0 -1", "*2|$1|x|$1|y|"),
    ]);
}

#[test]
fn a_failed_try_is_told_and_the_next_in_line_goes_on() {
    let mut room = Room::new(3);
    room.say(0, "BLPOP q 0");
    room.say(1, "BLPOP q 0");
    room.host.fail = Some(|request| {
        let pops = matches!(request, Request::Act { action: Action::Command(Command::ListPop(..)), .. });
        pops.then_some(Outcome::LATE)
    });
    room.clients[2].send(b"RPUSH q x\r\n", &mut room.host);
    let called = room.host.next_called();
    assert_eq!(called, Some(room.clients[0].session.id()));
    room.clients[0].session.on_called(&mut room.host);
    room.host.fail = None;
    room.pump();
    assert!(room.took(0).starts_with("-UNKNOWNOUTCOME "));
    assert_eq!(room.took(1), "*2|$1|q|$1|x|");
}

#[test]
fn who_may_no_more_takes_nothing_when_called() {
    let mut room = Room::new(2);
    room.script(&[(1, "ACL SETUSER ann on nopass ~* +@all", "+OK|"), (0, "AUTH ann x", "+OK|")]);
    room.send(0, "BLPOP q other 0");
    room.script(&[
        (1, "ACL SETUSER ann resetkeys ~other", "+OK|"),
        (1, "RPUSH q x", ":1|"),
        (0, "PING", "-NOPERM what user ann may do has changed while blpop waited: nothing was taken|+PONG|"),
        (1, "LLEN q", ":1|"),
        (0, "RPUSH other y", ":1|"),
        (0, "BLPOP other 0", "*2|$5|other|$1|y|"),
    ]);
    // A change that concerns something else does not end it.
    room.send(0, "BLPOP other 0");
    room.script(&[(1, "ACL SETUSER ann >pw", "+OK|"), (1, "RPUSH other z", ":1|")]);
    assert_eq!(room.took(0), "*2|$5|other|$1|z|");
}
