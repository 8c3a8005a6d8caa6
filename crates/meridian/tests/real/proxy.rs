//! A network between nodes that fails on command: each link goes through a proxy, which can hold up what goes either way.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;

/// One of the two ways of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// From who has dialled.
    Forth,
    /// To them.
    Back,
}

/// A link between two nodes.
pub(crate) struct Proxy {
    /// Where it is dialled.
    pub(crate) port: u16,
    link: Arc<Link>,
}

#[derive(Default)]
struct Link {
    state: Mutex<State>,
    healed: Condvar,
}

#[derive(Default)]
struct State {
    cut_forth: bool,
    cut_back: bool,
    connections: Vec<TcpStream>,
}

impl State {
    fn cut(&mut self, way: Way) -> &mut bool {
        match way {
            Way::Forth => &mut self.cut_forth,
            Way::Back => &mut self.cut_back,
        }
    }
}

impl Proxy {
    /// A link to a port.
    pub(crate) fn to(target: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("there is a free port");
        let port = listener.local_addr().expect("it has an address").port();
        let link = Arc::new(Link::default());
        let links = Arc::clone(&link);
        // Ends with the process, as nothing else ends it.
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let link = Arc::clone(&links);
                thread::spawn(move || link.connect(stream, target));
            }
        });
        Self { port, link }
    }

    /// From here on nothing comes through this way, and nobody is told: what is sent waits, as TCP would send it again.
    pub(crate) fn cut(&self, way: Way) {
        *self.link.lock().cut(way) = true;
    }

    /// Both ways are open. With `reset` the connections are broken, as they are after a long time.
    pub(crate) fn heal(&self, reset: bool) {
        let mut state = self.link.lock();
        (state.cut_forth, state.cut_back) = (false, false);
        if reset {
            for connection in state.connections.drain(..) {
                let _ = connection.shutdown(Shutdown::Both);
            }
        }
        self.link.healed.notify_all();
    }
}

impl Link {
    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().expect("no pump panics")
    }

    fn wait_open(&self, way: Way) {
        let cut = |state: &mut State| *state.cut(way);
        drop(self.healed.wait_while(self.lock(), cut).expect("no pump panics"));
    }

    /// Carries what a connection has to say.
    fn connect(self: Arc<Self>, from: TcpStream, target: u16) {
        self.wait_open(Way::Forth);
        self.wait_open(Way::Back);
        let Ok(to) = TcpStream::connect(("127.0.0.1", target)) else { return };
        let copies = (from.try_clone(), to.try_clone(), from.try_clone(), to.try_clone());
        let (Ok(from_too), Ok(to_too), Ok(reset_from), Ok(reset_to)) = copies else { return };
        let _ = (from.set_nodelay(true), to.set_nodelay(true));
        self.lock().connections.extend([reset_from, reset_to]);
        let link = Arc::clone(&self);
        thread::spawn(move || link.pump(to_too, from_too, Way::Back));
        self.pump(from, to, Way::Forth);
    }

    fn pump(&self, mut from: TcpStream, mut to: TcpStream, way: Way) {
        let mut buffer = vec![0; 64 << 10];
        while let Ok(count) = from.read(&mut buffer) {
            self.wait_open(way);
            if count == 0 || to.write_all(&buffer[..count]).is_err() {
                break;
            }
        }
        // Where one side is gone the other learns it once it can.
        self.wait_open(way);
        let _ = (to.shutdown(Shutdown::Both), from.shutdown(Shutdown::Both));
    }
}
