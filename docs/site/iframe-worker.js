// A page opened as a file may start no worker: its script runs in a hidden frame instead. The search needs one.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      const inside = (this.inside = frame.contentWindow);
      inside.document.write("<body></body>");
      inside.document.close();
      const load = (src) => new Promise((done, failed) => {
        const script = inside.document.createElement("script");
        Object.assign(script, { src, onload: done, onerror: failed });
        inside.document.body.append(script);
      });
      inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      inside.importScripts = (...urls) => urls.reduce((before, src) => before.then(() => load(src)), Promise.resolve());
      this.loaded = load(url);
    }

    postMessage(data) {
      this.loaded.then(() => this.inside.dispatchEvent(new MessageEvent("message", { data: structuredClone(data) })));
    }
  };
}
