"""What people send: it goes out once and in order, whatever happens, or says why not."""

from __future__ import annotations

import base64
import json
import re
import struct
import zlib

import pytest
from playwright.sync_api import BrowserContext, FilePayload, Route, WebSocketRoute, expect

from tests.browser.talk import Talk
from tests.conftest import once

pytestmark = once

STORED = re.compile(r"Sent|Queued until .+|Seen by the agent|Answered.*")
SLOW = "slow: " + " ".join(f"word{number}" for number in range(60))


@pytest.mark.no_second_try
def test_messages_written_offline_go_out_once_in_order(talk: Talk, context: BrowserContext) -> None:
    context.set_offline(True)
    expect(talk.line).to_contain_text("Offline since")
    for text in ("first", "second", "third"):
        talk.say(text)
    expect(talk.unsent).to_have_count(3)
    expect(talk.line).to_contain_text("3 waiting to be sent")
    assert talk.site.said(talk.id) == []
    context.set_offline(False)
    expect(talk.delivery("third")).to_have_text(STORED)
    expect(talk.unsent).to_have_count(0)
    assert talk.site.said(talk.id) == ["first", "second", "third"]


def test_messages_written_offline_outlive_their_page(talk: Talk, context: BrowserContext) -> None:
    context.set_offline(True)
    expect(talk.line).to_contain_text("Offline since")
    for text in ("first", "second", "third"):
        talk.say(text)
    expect(talk.line).to_contain_text("3 waiting to be sent")
    talk.page.evaluate(_WHEN_KEPT, 3)
    talk.page.close()
    context.set_offline(False)
    later = Talk(context.new_page(), talk.site, talk.id).open()
    expect(later.messages("user")).to_have_count(3)
    expect(later.unsent).to_have_count(0)
    assert talk.site.said(talk.id) == ["first", "second", "third"]


@pytest.mark.slow
def test_what_an_earlier_page_has_left_goes_out_before_what_is_new(
    talk: Talk, context: BrowserContext
) -> None:
    context.set_offline(True)
    expect(talk.line).to_contain_text("Offline since")
    talk.say("first")
    talk.say("second")
    talk.page.evaluate(_WHEN_KEPT, 2)
    talk.page.close()
    context.set_offline(False)
    later = Talk(context.new_page(), talk.site, talk.id)
    later.page.route_web_socket("**/ws/conversations/**", lambda socket: None)  # none is ever answered
    later.page.goto(f"{talk.site.url}/c/{talk.id}")
    expect(later.unsent).to_have_count(2)
    later.say("third")
    expect(later.unsent).to_have_text([re.compile(text) for text in ("first", "second", "third")])
    later.page.evaluate(_WHEN_KEPT, 3)
    later.page.close()
    last = Talk(context.new_page(), talk.site, talk.id).open()
    expect(last.messages("user")).to_have_count(3)
    assert talk.site.said(talk.id) == ["first", "second", "third"]


@pytest.mark.slow
def test_a_server_that_is_busy_is_asked_again_now_and_then_and_in_order(talk: Talk) -> None:
    sent: list[str] = []

    def be_busy_at_first(socket: WebSocketRoute) -> None:
        server = socket.connect_to_server()

        def take(frame: str | bytes) -> None:
            asked = json.loads(frame)
            if asked["type"] == "message":
                sent.append(asked["text"])
            if asked["type"] == "message" and len(sent) <= 3:
                socket.send(
                    json.dumps({"type": "error", "id": asked["id"], "code": "busy", "detail": "Busy."})
                )
            else:
                server.send(frame)

        socket.on_message(take)

    talk.page.route_web_socket(f"**/ws/conversations/{talk.id}?**", be_busy_at_first)
    talk.page.reload()
    talk.is_connected()
    for text in ("first", "second", "third"):
        talk.say(text)
    expect(talk.delivery("third")).to_have_text(STORED)
    assert talk.site.said(talk.id) == ["first", "second", "third"]
    assert sent == ["first"] * 4 + ["second", "third"]


def test_a_message_that_the_server_will_not_read_stops_no_other(talk: Talk) -> None:
    def refuse_to_read(socket: WebSocketRoute) -> None:
        server = socket.connect_to_server()
        socket.on_message(
            lambda frame: socket.close(code=1009) if "far too long" in str(frame) else server.send(frame)
        )

    talk.page.route_web_socket(f"**/ws/conversations/{talk.id}?**", refuse_to_read)
    talk.page.reload()
    talk.is_connected()
    talk.say("far too long")
    talk.say("short")
    expect(talk.delivery("far too long")).to_contain_text("Not sent: a message was too long")
    expect(talk.delivery("short")).to_have_text(STORED)
    talk.page.get_by_role("button", name="Edit and resend").click()
    expect(talk.box).to_have_value("far too long")


@pytest.mark.slow
def test_what_no_message_can_hold_stays_in_the_box_and_says_so(talk: Talk) -> None:
    talk.box.evaluate(_SEND_UNDRAWN, 17_000_000)
    expect(talk.page.locator("#composer .note")).to_contain_text("The limit is 16 MB")
    assert talk.box.evaluate("(box) => box.value.length") == 17_000_000
    expect(talk.unsent).to_have_count(0)


@pytest.mark.slow
def test_what_was_refused_goes_out_after_no_reload_by_itself(talk: Talk) -> None:
    talk.site.delete(talk.id)
    expect(talk.line).to_contain_text("Disconnected")
    talk.say("too late")
    expect(talk.delivery("too late")).to_contain_text("Not sent: The conversation was deleted.")
    talk.site.restore(talk.id)
    talk.is_connected()  # brought back, the page is, too
    expect(talk.delivery("too late")).to_contain_text("Not sent: The conversation was deleted.")
    talk.say("in time")
    expect(talk.messages("agent").filter(has_text="You said: in time")).to_have_count(1)
    assert talk.site.said(talk.id) == ["in time"]


@pytest.mark.parametrize(
    ("text", "steer", "end"),
    [("/fail", "", "Not answered: the agent failed"), (SLOW, "Stop", "Unfinished: the agent was stopped")],
)
@pytest.mark.slow
def test_a_message_that_got_no_answer_does_not_say_so(talk: Talk, text: str, steer: str, end: str) -> None:
    talk.say(text)
    if steer:
        expect(talk.streaming).to_contain_text("word")
        talk.page.get_by_role("button", name=steer).click()
    expect(talk.delivery(text)).to_contain_text(end)
    talk.say("Hello")
    talk.answered("You said: Hello")
    expect(talk.delivery(text)).to_contain_text(end)


@pytest.mark.no_second_try
def test_a_message_whose_ack_was_lost_is_stored_once(talk: Talk) -> None:
    talk.page.add_init_script(_LOSE_ACKS)
    talk.page.reload()
    talk.is_connected()
    talk.say("said once")
    expect(talk.messages("user")).to_have_count(1)
    expect(talk.unsent).to_have_count(0)
    talk.page.evaluate(_UNTIL, ["lostAcks", 1])
    talk.page.evaluate("window.loseAcks = false")
    talk.site.kill()
    talk.site.open()
    talk.hurry()
    expect(talk.unsent).to_have_count(0)
    assert talk.site.said(talk.id) == ["said once"]
    expect(talk.messages("user")).to_have_count(1)


@pytest.mark.no_second_try
@pytest.mark.usefixtures("browse_anew")  # which keeps the changed script
@pytest.mark.slow
def test_a_message_that_is_still_being_uploaded_is_not_sent_again(talk: Talk) -> None:
    talk.page.route("**/web/message_queue*.js", wait_less)
    talk.page.add_init_script(_LOSE_ACKS + _UPLOAD_SLOWLY)
    talk.page.reload()
    talk.is_connected()
    talk.say("said once")
    talk.page.evaluate(_UNTIL, ["lostAcks", 1])
    talk.page.evaluate(_UNTIL, ["looks", 3])
    assert talk.page.evaluate("window.sent") == 1
    talk.page.evaluate("window.loseAcks = window.isUploading = false")
    talk.page.evaluate(_UNTIL, ["sent", 2])  # its event may be shown before
    expect(talk.unsent).to_have_count(0)


@pytest.mark.slow
def test_a_store_of_unsent_messages_that_the_browser_has_closed_is_opened_again(talk: Talk) -> None:
    assert talk.page.evaluate(_CLOSE_STORE) == ["kept before", "kept after"]


def test_a_message_to_a_deleted_conversation_can_be_taken_back(talk: Talk) -> None:
    talk.site.delete(talk.id)
    expect(talk.line).to_contain_text("Disconnected")
    talk.say("hours of work")
    expect(talk.delivery("hours of work")).to_contain_text("Not sent: The conversation was deleted.")
    talk.page.get_by_role("button", name="Edit and resend").click()
    expect(talk.box).to_have_value("hours of work")
    expect(talk.unsent).to_have_count(0)


@pytest.mark.parametrize("way", ["paste", "drop"])
@pytest.mark.sampled(1)
def test_an_image_is_taken_and_sent(talk: Talk, way: str) -> None:
    talk.box.fill("Look at this")
    talk.page.evaluate(_GIVE, [way, base64.b64encode(_png()).decode()])
    expect(talk.page.get_by_role("img", name="Image 1")).to_be_visible()
    talk.box.press("Enter")
    talk.answered("You said: Look at this")
    image = talk.messages("user").get_by_role("img", name="Image of the message")
    expect(image).to_be_visible()
    assert image.evaluate("(image) => image.decode().then(() => image.naturalWidth)") == 40
    expect(talk.page.get_by_role("img", name="Image 1")).to_have_count(0)


@pytest.mark.slow
def test_an_image_can_be_left_out_again(talk: Talk) -> None:
    talk.page.evaluate(_GIVE, ["paste", base64.b64encode(_png()).decode()])
    talk.page.get_by_role("button", name="Remove image 1").click()
    talk.say("No image")
    talk.answered("You said: No image")
    expect(talk.messages("user").get_by_role("img")).to_have_count(0)


@pytest.mark.slow
def test_a_file_that_cannot_be_attached_is_named_until_one_goes_on_writing(talk: Talk) -> None:
    talk.page.route("**/files?name=*", lambda route: route.abort())
    note = talk.page.locator("#composer .note")
    with talk.page.expect_event("requestfinished", lambda request: request.method == "PUT"):
        talk.box.fill("See the plan")
        talk.page.evaluate(_GIVE, ["drop", base64.b64encode(b"%PDF").decode(), "application/pdf", "plan.pdf"])
    talk.page.evaluate("new Promise((done) => requestAnimationFrame(() => setTimeout(done)))")
    expect(note).to_have_text(
        "plan.pdf could not be attached: it can't be read, or the server can't be reached."
    )
    talk.box.press_sequentially(" there")
    expect(note).to_have_text("")


@pytest.mark.slow
def test_a_file_that_cannot_be_read_is_named_and_stops_no_other(talk: Talk) -> None:
    talk.page.evaluate(_READ_BADLY)
    note = talk.page.locator("#composer .note")
    names = ("gone.png", "here.png")
    talk.page.locator("#composer [type=file]").set_input_files(
        [FilePayload(name=name, mimeType="image/png", buffer=_png()) for name in names]
    )
    expect(talk.page.get_by_role("img", name="Image 1")).to_be_visible()
    expect(note).to_have_text("gone.png can't be read.")
    expect(talk.page.get_by_role("img", name="Image 2")).to_have_count(0)
    expect(talk.page.locator("#composer [type=file]")).to_have_value("")


@pytest.mark.slow
def test_a_message_waits_for_an_image_that_is_still_being_read(talk: Talk) -> None:
    talk.page.evaluate(_READ_BADLY)
    talk.box.fill("Look at this")
    talk.page.evaluate(_GIVE, ["paste", base64.b64encode(_png()).decode(), "image/png", "slow.png"])
    talk.box.press("Enter")
    note = talk.page.locator("#composer .note")
    expect(note).to_have_text("Attachments are still loading. Send your message in a moment.")
    expect(talk.unsent).to_have_count(0)
    talk.page.evaluate(_GO_ON_READING)
    expect(note).to_have_text("")
    talk.box.press("Enter")
    talk.answered("You said: Look at this")
    expect(talk.messages("user").get_by_role("img")).to_have_count(1)


def test_enter_sends_and_shift_enter_breaks_the_line(talk: Talk) -> None:
    talk.box.press_sequentially("one")
    talk.box.press("Shift+Enter")
    talk.box.press_sequentially("two")
    talk.box.press("Enter")
    talk.answered("You said: one")
    assert talk.site.said(talk.id) == ["one\ntwo"]


def wait_less(route: Route) -> None:
    """Let a page wait for an answer not for a minute but for a moment."""
    script = route.fetch()
    route.fulfill(response=script, body=script.text().replace("60_000", "20"))


def _png() -> bytes:
    width, height = 40, 30
    rows = b"".join(b"\0" + b"\x0b\x6e\x4f" * width for _ in range(height))
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunks = [(b"IHDR", head), (b"IDAT", zlib.compress(rows)), (b"IEND", b"")]
    packed = (
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
        for name, data in chunks
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(packed)


_GIVE = """
([way, content, type = "image/png", name = "image.png"]) => {
  const bytes = Uint8Array.from(atob(content), (each) => each.charCodeAt(0));
  const transfer = new DataTransfer();
  transfer.items.add(new File([bytes], name, { type }));
  const options = { bubbles: true, cancelable: true };
  document.querySelector("#text").dispatchEvent(
    way === "paste"
      ? new ClipboardEvent("paste", { ...options, clipboardData: transfer })
      : new DragEvent("drop", { ...options, dataTransfer: transfer }),
  );
}
"""

# A file named `gone` is none any more, and one named `slow` is read when `goOn` is called.
_READ_BADLY = """
() => {
  const read = FileReader.prototype.readAsDataURL;
  FileReader.prototype.readAsDataURL = function (file) {
    if (file.name.startsWith("gone")) queueMicrotask(() => this.onerror());
    else if (file.name.startsWith("slow")) window.goOn = () => read.call(this, file);
    else read.call(this, file);
  };
}
"""

# What reads an image may still be on its way itself.
_GO_ON_READING = """
async () => {
  while (!window.goOn) await new Promise(requestAnimationFrame);
  window.goOn();
}
"""

# To draw so much takes a busy browser longer than a test has.
_SEND_UNDRAWN = """
(box, length) => {
  box.style.display = "none";
  box.value = ("x".repeat(999) + "\\n").repeat(length / 1000);
  box.dispatchEvent(new Event("input", { bubbles: true }));
  box.form.requestSubmit();
}
"""

_WHEN_KEPT = """
async (count) => {
  const database = await new Promise((open) => {
    const request = indexedDB.open("convserver");
    request.onsuccess = () => open(request.result);
  });
  const kept = () => new Promise((counted) => {
    const request = database.transaction("outgoing").objectStore("outgoing").count();
    request.onsuccess = () => counted(request.result);
  });
  while ((await kept()) < count) await new Promise(requestAnimationFrame);
  database.close();
}
"""

_CLOSE_STORE = """
async () => {
  const names = performance.getEntriesByType("resource").map(({ name }) => name);
  const { UnsentStore } = await import(names.find((name) => name.includes("/web/unsent_store")));
  const store = new UnsentStore("somebody", "somewhere");
  await store.add({ id: 1, text: "kept before" });
  (await store.database).close();
  await store.add({ id: 2, text: "kept after" });
  return (await store.all()).map(({ text }) => text);
}
"""

# Wait until what is counted under this name has come so far.
_UNTIL = """
async ([name, count]) => {
  while (window[name] < count) await new Promise(requestAnimationFrame);
}
"""

# How often a message was `sent`, and how often somebody `looks` whether it is all on its way.
_UPLOAD_SLOWLY = """
Object.assign(window, { isUploading: true, looks: 0, sent: 0 });
Object.defineProperty(WebSocket.prototype, "bufferedAmount", {
  get: () => (window.looks++, window.isUploading ? 1 : 0),
});
const { send } = WebSocket.prototype;
WebSocket.prototype.send = function (frame) {
  if (frame.includes('"message"')) window.sent++;
  send.call(this, frame);
};
"""

# As if the connection broke after each message, while `loseAcks` is true; `lostAcks` says how often it did.
_LOSE_ACKS = """
Object.assign(window, { loseAcks: true, lostAcks: 0 });
const { set } = Object.getOwnPropertyDescriptor(WebSocket.prototype, "onmessage");
Object.defineProperty(WebSocket.prototype, "onmessage", {
  set(take) {
    const isLost = ({ data }) => window.loseAcks && data.includes('"ack"');
    set.call(this, take && ((event) => (isLost(event) ? window.lostAcks++ : take(event))));
  },
});
"""


@pytest.mark.slow
def test_nothing_was_said_is_not_said_under_a_message_on_its_way(talk: Talk, context: BrowserContext) -> None:
    nothing = talk.page.get_by_text("No messages yet")
    expect(nothing).to_be_visible()
    context.set_offline(True)
    expect(talk.line).to_contain_text("Offline since")
    talk.say("On its way")
    expect(talk.unsent).to_have_count(1)
    expect(nothing).to_be_hidden()
