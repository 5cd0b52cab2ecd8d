// Browsers start no worker for a page that is opened as a file. There the search runs in a hidden frame instead, which has
// what its script expects of a worker: importScripts, postMessage, and messages as events.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    #waiting = []
    #inside = null

    constructor(url) {
      super()
      const frame = document.createElement("iframe")
      frame.hidden = true
      document.documentElement.append(frame)
      const inside = frame.contentWindow
      inside.postMessage = (data) => this.#tell(this, data)
      inside.importScripts = (...urls) =>
        urls.reduce((before, next) => before.then(() => this.#script(inside, next, url)), Promise.resolve())
      this.#script(inside, url, location.href).then(() => {
        this.#inside = inside
        this.#waiting.splice(0).forEach((data) => this.#tell(inside, data))
      })
    }

    postMessage(data) {
      if (this.#inside) this.#tell(this.#inside, data)
      else this.#waiting.push(data)
    }

    #tell(to, data) {
      setTimeout(() => {
        const event = new MessageEvent("message", { data })
        to.dispatchEvent(event)
        to.onmessage?.(event)
        this === to && this.onmessage?.call(this, event)
      })
    }

    #script(inside, url, base) {
      return new Promise((done, failed) => {
        const script = inside.document.createElement("script")
        script.src = new URL(url, base).href
        script.onload = done
        script.onerror = failed
        inside.document.documentElement.append(script)
      })
    }
  }
}
